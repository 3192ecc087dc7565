#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/inference.h"

// Questions with known answers, asked and scored as lm-evaluation-harness (0.4.13) does without
// examples: its files, as JSON lines.
namespace capstan {

enum class BenchmarkForm : uint8_t {
  arc,        // question, choices {text, label}, answerKey
  hellaswag,  // activity_label, ctx_a, ctx_b, endings, label
  mmlu,       // question, choices, answer, subject (may be missing)
  gsm8k,      // question, answer; the model writes a text
};

// A file of questions, and the name that says its form: arc_easy, arc_challenge, hellaswag, mmlu,
// mmlu_anatomy, gsm8k.
struct Benchmark {
  std::string name;
  BenchmarkForm form{};
  struct Item {
    std::string context = {};
    std::vector<std::string> choices = {};  // the answer choices; exactly one is correct
    size_t right = 0;
    std::string answer = {};  // of gsm8k, instead of choices
  };
  std::vector<Item> items = {};

  bool is_written() const { return form == BenchmarkForm::gsm8k; }
};

// "NAME:FILE". Throws Fault::usage for an unknown name, Fault::file with its line for a record of
// another form.
Benchmark read_benchmark(const std::string& name_and_file);

// The share of items that were right, under each measure of the form: acc and acc_norm (by the
// length of the choices), or exact_match of the number after "####" (strict) and of the last number
// (flexible).
struct BenchmarkScore {
  struct Measure {
    std::string name;
    double value = 0, error = 0;  // of the mean
  };
  std::vector<Measure> measures;
};

// Memory that asking takes: the longest text in tokens, and that of a context with its answer.
struct BenchmarkNeeds {
  int64_t tokens = 0, positions = 0;
};
BenchmarkNeeds needs_of(const Benchmark& benchmark, const Tokenizer& tokenizer,
                        int64_t max_positions);

// `told` is called after every item.
BenchmarkScore score(const Benchmark& benchmark, const Tokenizer& tokenizer, LoadedModel& model,
                     const ModelConfig& config, const std::function<void()>& told);

// HellaSwag's texts without the marks of the pages that they come from, as the harness's preprocess
// removes them: trimmed, " [title]" becomes ". ", "[…]" within a line goes, two spaces become one.
std::string without_page_marks(const std::string& text);

// What the two filters of gsm8k find in a text that a model wrote: "[invalid]" if nothing.
std::string strict_number(const std::string& text);
std::string flexible_number(const std::string& text);
// Whether a number that was found is the answer's.
bool same_answer(std::string found, std::string answer);

}  // namespace capstan
