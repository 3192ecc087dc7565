// Reading the files of questions.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "data/records/record_source.h"
#include "infer/benchmark.h"

namespace capstan {
namespace {

using nlohmann::json;

// The first letter large, the others small, as Python's capitalize does with ASCII.
std::string capitalized(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

// The fields of a record, each of the type that the form needs.
class Question {
 public:
  Question(const json& record, std::string where) : record_(record), where_(std::move(where)) {
    require(record.is_object(), Fault::file, "{}: expected a record, found {}", where_,
            shown(record));
  }

  bool has(const char* key) const { return record_.contains(key); }
  std::string text(const char* key) const {
    const json& value = at(key);
    require(value.is_string(), Fault::file, "{}: {}: expected a text, found {}", where_, key,
            shown(value));
    return value;
  }
  std::vector<std::string> texts(const char* key) const {
    const json& list = at(key);
    const bool ok =
        list.is_array() && !list.empty() &&
        std::all_of(list.begin(), list.end(), [](const json& v) { return v.is_string(); });
    require(ok, Fault::file, "{}: {}: expected a list of texts, found {}", where_, key,
            list.is_array() ? "a list of something else" : shown(list));
    return list;
  }
  Question object(const char* key) const { return {at(key), where_ + ": " + key}; }
  // A number of one of `count` choices, from 0: as such or as a text.
  size_t index(const char* key, size_t count) const {
    const json& value = at(key);
    const std::string digits = value.is_string() ? value.get<std::string>() : value.dump();
    size_t found = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found);
    const bool ok = error == std::errc() && end == digits.data() + digits.size() && found < count;
    require(ok, Fault::file, "{}: {}: expected a number from 0 to {}, found {}", where_, key,
            count - 1, shown(value));
    return found;
  }
  const std::string& where() const { return where_; }

 private:
  const json& at(const char* key) const {
    const auto found = record_.find(key);
    require(found != record_.end(), Fault::file, "{}: expected the field \"{}\", found {}", where_,
            key, fields_in(record_));
    return *found;
  }

  const json& record_;
  std::string where_;
};

Benchmark::Item arc_item(const Question& q) {
  Benchmark::Item item{.context = fmt::format("Question: {}\nAnswer:", q.text("question"))};
  const Question choices = q.object("choices");
  const std::vector<std::string> labels = choices.texts("label");
  item.choices = choices.texts("text");
  require(labels.size() == item.choices.size(), Fault::file,
          "{}: expected as many labels as texts, found {} and {}", choices.where(), labels.size(),
          item.choices.size());
  const std::string answer = q.text("answerKey");
  item.right =
      static_cast<size_t>(std::find(labels.begin(), labels.end(), answer) - labels.begin());
  require(item.right < labels.size(), Fault::file, "{}: answerKey: {} is none of the choices",
          q.where(), in_quotes(answer));
  return item;
}

Benchmark::Item hellaswag_item(const Question& q) {
  const std::string activity = q.text("activity_label"), begin = q.text("ctx_a");
  Benchmark::Item item{.context = without_page_marks(fmt::format("{}: {} {}", activity, begin,
                                                                 capitalized(q.text("ctx_b"))))};
  for (const std::string& ending : q.texts("endings"))
    item.choices.push_back(without_page_marks(ending));
  item.right = q.index("label", item.choices.size());
  return item;
}

Benchmark::Item mmlu_item(const Question& q) {
  const std::vector<std::string> choices = q.texts("choices");
  require(choices.size() == 4, Fault::file, "{}: choices: expected four, found {}", q.where(),
          choices.size());
  Benchmark::Item item{.choices = {"A", "B", "C", "D"}};
  if (q.has("subject"))
    item.context =
        fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                    replaced(q.text("subject"), "_", " "));
  const std::string question = q.text("question");
  item.context += fmt::format("{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:", trimmed(question),
                              choices[0], choices[1], choices[2], choices[3]);
  item.right = q.index("answer", item.choices.size());
  return item;
}

Benchmark::Item gsm8k_item(const Question& q) {
  return {.context = fmt::format("Question: {}\nAnswer:", q.text("question")),
          .answer = q.text("answer")};
}

Benchmark::Item item_of(BenchmarkForm form, const Question& q) {
  switch (form) {
    case BenchmarkForm::arc: return arc_item(q);
    case BenchmarkForm::hellaswag: return hellaswag_item(q);
    case BenchmarkForm::mmlu: return mmlu_item(q);
    case BenchmarkForm::gsm8k: return gsm8k_item(q);
  }
  fail(Fault::bug, "a benchmark of an unknown form");
}

BenchmarkForm form_of(const std::string& name) {
  const std::pair<const char*, BenchmarkForm> forms[] = {{"arc", BenchmarkForm::arc},
                                                         {"hellaswag", BenchmarkForm::hellaswag},
                                                         {"mmlu", BenchmarkForm::mmlu},
                                                         {"gsm8k", BenchmarkForm::gsm8k}};
  for (const auto& [begin, form] : forms)
    if (name == begin || name.starts_with(std::string(begin) + "_")) return form;
  fail(
      Fault::usage,
      "--tasks: expected arc_easy, arc_challenge, hellaswag, mmlu or gsm8k before the colon, found "
      "'{}'",
      name);
}

}  // namespace

// A regular expression would be "\\[[^\\n]*?\\]". Where a bracket is not closed on its line, nor
// are those between it and the line's end: each character is read once or twice.
std::string without_page_marks(const std::string& text) {
  const std::string s = replaced(std::string(trimmed(text)), " [title]", ". ");
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t open = std::min(s.find('[', at), s.size());
    const size_t stop = s.find_first_of("]\n", open);
    const bool closed = stop != std::string::npos && s[stop] == ']';
    const size_t end = std::min(stop, s.size());
    out.append(s, at, (closed ? open : end) - at);
    at = closed ? end + 1 : end;
  }
  return replaced(out, "  ", " ");
}

Benchmark read_benchmark(const std::string& name_and_file) {
  const size_t colon = name_and_file.find(':');
  require(colon != std::string::npos && colon + 1 < name_and_file.size(), Fault::usage,
          "--tasks: expected NAME:FILE such as arc_easy:arc_easy.jsonl, found '{}'", name_and_file);
  Benchmark b{.name = name_and_file.substr(0, colon)};
  b.form = form_of(b.name);
  const std::string file = name_and_file.substr(colon + 1);
  const std::string text = read_text(file, int64_t{1} << 32);
  int64_t number = 1;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1, ++number) {
    end = std::min(text.find('\n', at), text.size());
    const auto line = std::string_view(text).substr(at, end - at);
    if (trimmed(line).empty()) continue;
    const json record = parse_json(line, file, kDeepestJson, {.line = number});
    b.items.push_back(item_of(b.form, {record, fmt::format("{}:{}: {}", file, number, b.name)}));
  }
  require(!b.items.empty(), Fault::file, "{}: has no records", file);
  return b;
}

}  // namespace capstan
