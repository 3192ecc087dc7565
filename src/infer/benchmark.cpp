#include "infer/benchmark.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/batch/micro_batches.h"

namespace capstan {
namespace {

// Tokens of an answer; a model with few positions keeps half of them for the question.
constexpr int64_t most_written(int64_t max_positions) {
  return std::min<int64_t>(256, max_positions / 2);
}

int64_t letters_in(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::vector<int32_t> with_bos(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if (const auto bos = tokenizer.bos()) ids.insert(ids.begin(), *bos);
  return ids;
}

// A context and what follows it, cut to the model's positions, and where the latter begins.
struct Continuation {
  std::vector<int32_t> tokens;
  int64_t first_target = 0;
};
Continuation continuation_of(const Tokenizer& tokenizer, const Benchmark::Item& item,
                             const std::string& choice, int64_t max_positions) {
  // White space at the end of the context belongs to what follows.
  const size_t end = item.context.find_last_not_of(kWhiteSpace) + 1;
  Continuation c{with_bos(tokenizer, item.context + " " + choice), 0};
  const auto before = std::ssize(with_bos(tokenizer, item.context.substr(0, end)));
  const int64_t surplus = std::max<int64_t>(0, std::ssize(c.tokens) - (max_positions + 1));
  c.tokens.erase(c.tokens.begin(), c.tokens.begin() + surplus);
  c.first_target = std::max<int64_t>(1, before - surplus);
  return c;
}

BenchmarkScore::Measure measure(const char* name, int64_t right, size_t count) {
  const auto n = static_cast<double>(count);
  const double mean = static_cast<double>(right) / n;
  const double error = count > 1 ? std::sqrt(mean * (1 - mean) / (n - 1)) : 0;
  return {name, mean, error};
}

// The end of the characters of a set that begin there.
size_t end_of(const std::string& text, size_t begin, const char* set) {
  return std::min(text.find_first_not_of(set, begin), text.size());
}

size_t greatest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

BenchmarkScore score_choices(const Benchmark& benchmark, const Tokenizer& tokenizer,
                             LoadedModel& model, const ModelConfig& config,
                             const std::function<void()>& told) {
  int64_t right = 0, right_by_length = 0;
  for (const Benchmark::Item& item : benchmark.items) {
    Dataset texts;
    for (const std::string& choice : item.choices) {
      const Continuation c = continuation_of(tokenizer, item, choice, config.max_positions);
      texts.add(c.tokens, c.first_target);
    }
    MicroBatches data(
        texts, 1, {.max_seq_length = config.max_positions, .vocab = config.vocab, .packed = false});
    std::vector<double> likelihoods, by_length;
    for (int64_t i = 0; i < texts.size(); ++i) {
      data.start(std::span(&i, 1));
      likelihoods.push_back(-model.model().evaluate(data).loss_sum);
      by_length.push_back(likelihoods.back() /
                          static_cast<double>(letters_in(item.choices[static_cast<size_t>(i)])));
    }
    right += greatest(likelihoods) == item.right;
    right_by_length += greatest(by_length) == item.right;
    told();
  }
  BenchmarkScore s{{measure("acc", right, benchmark.items.size())}};
  if (benchmark.form != BenchmarkForm::mmlu)
    s.measures.push_back(measure("acc_norm", right_by_length, benchmark.items.size()));
  return s;
}

BenchmarkScore score_texts(const Benchmark& benchmark, const Tokenizer& tokenizer,
                           LoadedModel& model, const ModelConfig& config,
                           const std::function<void()>& told) {
  GenerateOptions options;
  options.max_new_tokens = most_written(config.max_positions);
  options.sampling.temperature = 0;
  options.stop_ids.assign(config.eos_ids.begin(), config.eos_ids.end());
  options.stop_ids.push_back(tokenizer.eos());
  int64_t strict = 0, flexible = 0;
  for (const Benchmark::Item& item : benchmark.items) {
    std::vector<int32_t> prompt = with_bos(tokenizer, item.context);
    const int64_t surplus =
        std::ssize(prompt) + most_written(config.max_positions) - config.max_positions;
    if (surplus > 0) prompt.erase(prompt.begin(), prompt.begin() + surplus);
    std::string text = tokenizer.decode_after(
        prompt, generate(model.queue(), model.model().decoder(), prompt, options));
    for (const char* stop : {"Question:", "</s>", "<|im_end|>"})
      text = text.substr(0, text.find(stop));
    strict += same_answer(strict_number(text), item.answer);
    flexible += same_answer(flexible_number(text), item.answer);
    told();
  }
  return {{measure("exact_match,strict-match", strict, benchmark.items.size()),
           measure("exact_match,flexible-extract", flexible, benchmark.items.size())}};
}

}  // namespace

BenchmarkNeeds needs_of(const Benchmark& benchmark, const Tokenizer& tokenizer,
                        int64_t max_positions) {
  BenchmarkNeeds needs;
  for (const Benchmark::Item& item : benchmark.items) {
    for (const std::string& choice : item.choices)
      needs.tokens = std::max(
          needs.tokens, std::ssize(continuation_of(tokenizer, item, choice, max_positions).tokens));
    if (benchmark.is_written())
      needs.positions = std::max(
          needs.positions, std::min(max_positions, std::ssize(with_bos(tokenizer, item.context)) +
                                                       most_written(max_positions)));
  }
  return needs;
}

BenchmarkScore score(const Benchmark& benchmark, const Tokenizer& tokenizer, LoadedModel& model,
                     const ModelConfig& config, const std::function<void()>& told) {
  return (benchmark.is_written() ? score_texts : score_choices)(benchmark, tokenizer, model, config,
                                                                told);
}

std::string strict_number(const std::string& text) {
  constexpr std::string_view kMark = "#### ";
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos; ++at) {
    const size_t begin = at + kMark.size();
    const size_t digits = begin + (text.compare(begin, 1, "-") == 0 ? 1 : 0);
    const size_t end = end_of(text, digits, "0123456789.,");
    if (end > digits) return text.substr(begin, end - begin);
  }
  return "[invalid]";
}

std::string flexible_number(const std::string& text) {
  std::string last = "[invalid]";
  for (size_t at = 0; at < text.size();) {
    const size_t digits = at + (text[at] == '-' ? 1 : 0);
    const size_t end = end_of(text, digits, "$0123456789.,");
    // One character counts if it is a digit.
    const bool is_number =
        end > digits + 1 ||
        (end == digits + 1 && std::isdigit(static_cast<unsigned char>(text[digits])) != 0);
    if (is_number) last = text.substr(at, end - at);
    at = is_number ? end : std::max(digits, at + 1);
  }
  return last;
}

bool same_answer(std::string found, std::string answer) {
  for (std::string* text : {&found, &answer}) {
    *text = replaced(replaced(*text, ",", ""), "$", "");
    if (const size_t mark = text->rfind("#### "); mark != std::string::npos)
      text->erase(0, mark + 5);
    if (text->ends_with('.')) text->pop_back();
    std::transform(text->begin(), text->end(), text->begin(),
                   [](unsigned char c) { return std::tolower(c); });
  }
  return found == answer;
}

}  // namespace capstan
