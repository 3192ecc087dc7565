#include "data/lint.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

constexpr size_t kPlaces = 3;

struct Kind {
  LintFinding LintReport::*finding;
  std::string_view one, many;  // the verb: "has", "have"
  std::string_view what;
};
// In the order of the report.
constexpr Kind kKinds[] = {
    {&LintReport::doubled_bos, "begins", "begin",
     "with two bos tokens: the text itself contains one. Remove it from the data"},
    {&LintReport::missing_eos, "does not end", "do not end",
     "with an end token: the model does not learn to stop from it"},
    {&LintReport::all_masked, "has", "have",
     "nothing to learn after masking and truncation: training on it only costs time"},
    {&LintReport::truncated, "is", "are", "longer than max_seq_length: the end is truncated"},
    {&LintReport::empty_response, "has", "have",
     "an empty response: the model learns to answer nothing"},
    {&LintReport::duplicate, "repeats", "repeat", "an earlier sample, token for token"},
    {&LintReport::joined_input, "has", "have",
     "an input, but the prompt style has no place for it: it follows the instruction"},
    {&LintReport::joined_system, "has", "have",
     "a system message, but the prompt style has no place for it: it precedes the instruction"},
    {&LintReport::first_turn, "has", "have",
     "several turns, but only the first is used. A chat template uses all"},
};

class Linter {
 public:
  Linter(const Dataset& dataset, const Tokenizer& tokenizer, const LintOptions& options)
      : data_(dataset), bos_(tokenizer.bos()), ends_(options.ends), options_(options) {
    ends_.push_back(tokenizer.eos());
  }

  LintReport run() {
    report_.samples = data_.size();
    for (int64_t i = 0; i < data_.size(); ++i) check(i);
    return std::move(report_);
  }

 private:
  void note(LintFinding& finding, int64_t sample, bool found) {
    if (!found) return;
    if (finding.places.size() < kPlaces) finding.places.push_back(data_.where_of(sample));
    ++finding.count;
  }

  void check(int64_t i) {
    const auto tokens = data_.tokens_of(i);
    const int32_t flags = data_.origin_of(i).flags;
    LintReport& r = report_;
    note(r.doubled_bos, i, bos_ && tokens[0] == *bos_ && tokens[1] == *bos_);
    note(r.truncated, i, data_.inputs_of(i, options_.max_seq_length) + 1 < std::ssize(tokens));
    note(r.all_masked, i, data_.targets_of(i, options_.max_seq_length) == 0);
    if (options_.documents) return;
    note(r.missing_eos, i, !ends(i));
    note(r.empty_response, i, flags & SampleOrigin::empty_response);
    note(r.joined_input, i, flags & SampleOrigin::joined_input);
    note(r.joined_system, i, flags & SampleOrigin::joined_system);
    note(r.first_turn, i, flags & SampleOrigin::first_turn);
    note(r.duplicate, i, is_repeated(i));
  }

  // Whether the last target token (or, without targets, the last token) is an end token.
  bool ends(int64_t i) const {
    const auto tokens = data_.tokens_of(i);
    const auto spans = data_.target_spans_of(i);
    const size_t end = spans.empty() ? tokens.size() : static_cast<size_t>(spans.back().end);
    return std::find(ends_.begin(), ends_.end(), tokens[end - 1]) != ends_.end();
  }

  bool is_repeated(int64_t i) {
    const auto tokens = data_.tokens_of(i);
    const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
    const auto [first, is_new] = seen_.try_emplace(std::hash<std::string_view>()(bytes), i);
    if (is_new) return false;
    const auto other = data_.tokens_of(first->second);
    return std::equal(tokens.begin(), tokens.end(), other.begin(), other.end());
  }

  const Dataset& data_;
  std::optional<int32_t> bos_;
  std::vector<int32_t> ends_;
  LintOptions options_;
  LintReport report_;
  std::unordered_map<size_t, int64_t> seen_;
};

}  // namespace

bool LintReport::clean() const {
  return std::all_of(std::begin(kKinds), std::end(kKinds),
                     [&](const Kind& kind) { return (this->*kind.finding).count == 0; });
}

LintReport lint(const Dataset& dataset, const Tokenizer& tokenizer, const LintOptions& options) {
  return Linter(dataset, tokenizer, options).run();
}

LintReport merge(LintReport a, const LintReport& b) {
  a.samples += b.samples;
  for (const Kind& kind : kKinds) {
    LintFinding& to = a.*kind.finding;
    const LintFinding& from = b.*kind.finding;
    to.count += from.count;
    for (const std::string& place : from.places)
      if (to.places.size() < kPlaces) to.places.push_back(place);
  }
  return a;
}

std::vector<std::string> warnings(const LintReport& report) {
  std::vector<std::string> lines;
  for (const Kind& kind : kKinds) {
    const LintFinding& finding = report.*kind.finding;
    if (finding.count == 0) continue;
    const std::string more = finding.count > std::ssize(finding.places) ? ", …" : "";
    lines.push_back(fmt::format("{} of {} {} {} ({}{})", finding.count,
                                count(report.samples, "sample"),
                                finding.count == 1 ? kind.one : kind.many, kind.what,
                                fmt::join(finding.places, ", "), more));
  }
  return lines;
}

}  // namespace capstan
