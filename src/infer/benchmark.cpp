#include "infer/benchmark.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/batch/micro_batches.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Tokens of an answer; a model with few positions keeps half of them for the question.
constexpr int64_t most_written(int64_t max_positions) {
  return std::min<int64_t>(256, max_positions / 2);
}

// The first letter large, the others small, as Python's capitalize does with ASCII.
std::string capitalized(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

// HellaSwag's texts have marks of the pages that they come from.
std::string without_marks(const std::string& text) {
  std::string s = replaced(std::string(trimmed(text)), " [title]", ". ");
  s = std::regex_replace(s, std::regex("\\[[^\\n]*?\\]"), "");
  return replaced(s, "  ", " ");
}

int64_t letters_in(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

size_t index_of(const json& value) {
  return value.is_string() ? std::stoul(std::string(value)) : value.get<size_t>();
}

Benchmark::Item item_of(BenchmarkForm form, const json& r) {
  Benchmark::Item item;
  switch (form) {
    case BenchmarkForm::arc: {
      item.context = fmt::format("Question: {}\nAnswer:", std::string(r.at("question")));
      const auto labels = r.at("choices").at("label").get<std::vector<std::string>>();
      item.choices = r.at("choices").at("text").get<std::vector<std::string>>();
      item.right = static_cast<size_t>(
          std::find(labels.begin(), labels.end(), std::string(r.at("answerKey"))) - labels.begin());
      break;
    }
    case BenchmarkForm::hellaswag:
      item.context =
          without_marks(fmt::format("{}: {} {}", std::string(r.at("activity_label")),
                                    std::string(r.at("ctx_a")), capitalized(r.at("ctx_b"))));
      for (const json& ending : r.at("endings")) item.choices.push_back(without_marks(ending));
      item.right = index_of(r.at("label"));
      break;
    case BenchmarkForm::mmlu: {
      const auto choices = r.at("choices").get<std::vector<std::string>>();
      if (choices.size() != 4) throw json::other_error::create(0, "choices: expected four", &r);
      if (r.contains("subject"))
        item.context =
            fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                        replaced(r.at("subject"), "_", " "));
      item.context += fmt::format(
          "{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:", trimmed(std::string(r.at("question"))),
          choices[0], choices[1], choices[2], choices[3]);
      item.choices = {"A", "B", "C", "D"};
      item.right = index_of(r.at("answer"));
      break;
    }
    case BenchmarkForm::gsm8k:
      item.context = fmt::format("Question: {}\nAnswer:", std::string(r.at("question")));
      item.answer = r.at("answer");
      return item;
  }
  if (item.right >= item.choices.size())
    throw json::other_error::create(0, "the right answer is none of the choices", &r);
  return item;
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
  std::string context = item.context, rest = " " + choice;
  while (!context.empty() && std::isspace(static_cast<unsigned char>(context.back())) != 0) {
    rest.insert(rest.begin(), context.back());
    context.pop_back();
  }
  Continuation c{with_bos(tokenizer, context + rest), 0};
  const auto before = std::ssize(with_bos(tokenizer, context));
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
    const std::string line = text.substr(at, end - at);
    if (trimmed(line).empty()) continue;
    try {
      b.items.push_back(item_of(b.form, json::parse(line)));
    } catch (const std::exception& e) {
      fail(Fault::file, "{}:{}: expected a record as {} has it: {}", file, number, b.name,
           e.what());
    }
  }
  require(!b.items.empty(), Fault::file, "{}: has no records", file);
  return b;
}

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
  std::smatch found;
  return std::regex_search(text, found, std::regex("#### (-?[0-9.,]+)")) ? found[1].str()
                                                                         : "[invalid]";
}

std::string flexible_number(const std::string& text) {
  static const std::regex kNumber("(-?[$0-9.,]{2,})|(-?[0-9]+)");
  std::string last = "[invalid]";
  for (std::sregex_iterator it(text.begin(), text.end(), kNumber), end; it != end; ++it)
    last = it->str();
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
