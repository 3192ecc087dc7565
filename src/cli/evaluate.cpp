#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "cli/text_model.h"
#include "data/dataset/sampler.h"
#include "data/records/record_file.h"
#include "data/records/text_files.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "infer/benchmark.h"
#include "recipe/options.h"
#include "report/progress.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

struct EvaluateOptions {
  std::string folder, base, data, quantize;
  PrecisionWords precision;
  std::string accelerator = "auto";
  Recipe recipe = defaults_of(Task::finetune_full);
  int64_t max_seq_length = 0;  // 0: the model's maximum
  bool json = false;
  std::vector<std::string> tasks;
};

bool holds_text(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* records :
       {"train.json", "train.jsonl", "train.csv", "val.json", "val.jsonl", "val.csv"})
    if (std::filesystem::exists(folder / records, error)) return false;
  return std::filesystem::is_directory(folder, error);
}

// True if the records are documents. They are evaluated as text, so that no token of a long one is
// truncated.
bool holds_documents(const std::filesystem::path& file, const Recipe& r) {
  std::error_code error;
  if (!is_document_name(file) || !std::filesystem::is_regular_file(file, error)) return false;
  RecordFields fields;
  fields.text = r.column_text.value_or("");
  try {
    return RecordFile(file, fields).record(0).is_document();
  } catch (const Error&) {
    return false;  // the loader reports every error in the file
  }
}

// Decides from the path whether the data is text or records.
void name_data(EvaluateOptions& o) {
  Recipe& r = o.recipe;
  r.val_split_fraction = 0;
  const bool columns = r.column_instruction || r.column_output || r.column_messages;
  const bool text = is_text_name(o.data) || o.data.ends_with(".md") || holds_text(o.data) ||
                    (!columns && holds_documents(o.data, r));
  const bool is_text = text || (o.data.empty() && r.train_data_path);
  r.data = is_text ? DataClass::text_files : DataClass::json;
  if (!o.data.empty()) (text ? r.train_data_path : r.json_path) = o.data;
  if (o.max_seq_length > 0) r.max_seq_length = o.max_seq_length;
}

RunInputs inputs_of(const EvaluateOptions& o, const ModelFiles& files) {
  RunInputs in;
  const Recipe& r = o.recipe;
  in.tokenizer_dir = files.tokenizer();
  in.tokenizer = load_tokenizer(in.tokenizer_dir, files.base);
  in.model = {files.config, files.base, folder_name(files.folder)};
  require_rows_for(*in.tokenizer, files.config, in.tokenizer_dir);
  in.max_seq_length = max_seq_length_of(r, files.config);
  warn_of_positions(r, files.config);
  DataOptions options = data_options(r, in.max_seq_length);
  options.chat_template = files.chat_template();
  // Prompt the model as in its training.
  const RecordedPrompting recorded = read_prompt_style(files.prompting());
  if (options.style.empty()) {
    if (recorded.style != nullptr && !recorded.style->name.empty())
      options.style = recorded.style->name;
    if (recorded.own_template && options.chat_template) options.style = kChatTemplateStyle;
    if (recorded.chat_template != nullptr)
      options.style = fmt::format("{}:{}", kChatTemplateStyle, recorded.chat_template->name);
  }
  in.data = load_data(options, *in.tokenizer);
  for (const std::string& note : in.data.notes) log::info("{}", note);
  if (in.data.validation.size() > 0) {
    log::info("evaluating the held-out split ({})", count(in.data.validation.size(), "sample"));
    std::swap(in.data.train, in.data.validation);
  }
  for (const std::string& line : warnings(in.data.lint)) log::warn("{}", line);
  return in;
}

// In chunks, so that a terminal can show progress.
Evaluation evaluate_all(Inference& model, const RunInputs& in, const Recipe& r, int64_t batch) {
  Sampler in_order(in.data.train.size(), 8 * batch, 0, false);
  MicroBatches data(in.data.train, batch, batch_options(r, in));
  const auto start = std::chrono::steady_clock::now();
  Evaluation all;
  const int64_t pieces = in_order.steps_per_epoch();
  for (int64_t i = 0; i < pieces; ++i) {
    data.start(in_order.ids(i));
    const Evaluation e = model.evaluate(data);
    all.loss_sum += e.loss_sum;
    all.targets += e.targets;
    if (!can_redraw()) continue;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    log::draw_bar(progress_bar({.done = i + 1,
                                .total = pieces,
                                .elapsed = took.count(),
                                .seconds_per_step = took.count() / static_cast<double>(i + 1),
                                .notes = fmt::format("loss={:.4f}", all.mean())},
                               79));
  }
  log::end_bar();
  return all;
}

void report(const EvaluateOptions& o, const RunInputs& in, const Evaluation& e, double seconds) {
  const DatasetCounts c = count(in.data.train, in.max_seq_length);
  if (o.json) {
    const nlohmann::ordered_json out = {
        {"loss", e.mean()},         {"perplexity", std::exp(e.mean())},
        {"tokens", e.targets},      {"samples", in.data.train.size()},
        {"truncated", c.truncated}, {"seconds", seconds}};
    print_json(out);
    return;
  }
  fmt::print("loss {:.6f}, perplexity {:.4f}, over {} of {}\n", e.mean(), std::exp(e.mean()),
             count(e.targets, "token"), count(in.data.train.size(), "sample"));
  log::info("{} {} in {}, {} tok/s", format_count(static_cast<double>(c.inputs)),
            c.inputs == 1 ? "token" : "tokens", format_duration(seconds),
            format_count(static_cast<double>(c.inputs) / seconds));
}

// Asks the questions of one file after the other, each with a plan of its own.
int evaluate_tasks(const EvaluateOptions& o) {
  const ModelFiles files = find_model(o.folder, o.base, o.quantize);
  const auto tokenizer = load_tokenizer(files.tokenizer(), files.base);
  require_rows_for(*tokenizer, files.config, files.tokenizer());
  std::vector<Benchmark> benchmarks;
  BenchmarkNeeds most;
  for (const std::string& task : o.tasks) {
    benchmarks.push_back(read_benchmark(task));
    const BenchmarkNeeds needs =
        needs_of(benchmarks.back(), *tokenizer, files.config.max_positions);
    most.tokens = std::max(most.tokens, needs.tokens);
    most.positions = std::max(most.positions, needs.positions);
  }
  InferenceOptions options;
  options.device = parse_accelerator(o.accelerator);
  options.precision = inference_precision(o.precision.precision, files.config, options.device);
  options.tf32 = o.precision.tf32();
  options.positions = most.positions;
  if (most.tokens > 0) {
    Dataset longest;
    longest.add(std::vector<int32_t>(static_cast<size_t>(most.tokens)), 1);
    options.limits = limits_of(longest, 1,
                               {.max_seq_length = files.config.max_positions,
                                .vocab = files.config.vocab,
                                .packed = false});
  }
  tell_quantize(files);
  LoadedModel loaded(files, options);
  nlohmann::ordered_json out;
  if (!o.json)
    fmt::print("{:<20}{:>8}  {:<32}{:>8}{:>9}\n", "task", "items", "measure", "value", "±");
  for (const Benchmark& b : benchmarks) {
    int64_t done = 0;
    const auto start = std::chrono::steady_clock::now();
    const BenchmarkScore s = score(b, *tokenizer, loaded, files.config, [&] {
      if (++done, !can_redraw()) return;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      log::draw_bar(progress_bar({.done = done,
                                  .total = std::ssize(b.items),
                                  .elapsed = took.count(),
                                  .seconds_per_step = took.count() / static_cast<double>(done),
                                  .notes = b.name},
                                 79));
    });
    log::clear_bar();
    out[b.name]["items"] = b.items.size();
    for (const BenchmarkScore::Measure& m : s.measures) {
      out[b.name][m.name] = m.value;
      out[b.name][m.name + "_stderr"] = m.error;
      if (!o.json)
        fmt::print("{:<20}{:>8}  {:<32}{:>8.4f}{:>9.4f}\n", b.name, b.items.size(), m.name, m.value,
                   m.error);
    }
  }
  if (o.json) print_json(out);
  return 0;
}

}  // namespace

int evaluate(const Arguments& arguments) {
  CommandLine line("Computes the loss and perplexity of a model on data; every token counts once.",
                   "capstan evaluate");
  EvaluateOptions o;
  Recipe& r = o.recipe;
  r.micro_batch_size = 8;
  line.required("checkpoint_dir", o.folder, "folder of the model or of an adapter");
  line.option("--base_model", o.base,
              "folder of the adapter's base model (default: the one the adapter names)");
  line.option("--data", o.data, "a .txt, .md, .json, .jsonl or .csv file, or a folder of .txt");
  line.option(
      "--data.json_path", r.json_path,
      "records: a .json, .jsonl or .csv file, or a folder with train and val (val is evaluated)");
  line.option("--data.train_data_path", r.train_data_path,
              "text: a .txt or .jsonl file, or a folder of them");
  for (const Option& option : options())
    if (std::string_view(option.key).starts_with("data.columns."))
      line.option(("--" + std::string(option.key)).c_str(),
                  r.*std::get<std::optional<std::string> Recipe::*>(option.field), option.help);
  line.truth("--data.mask_prompt", r.mask_prompt, "evaluate the responses only");
  line.option("--data.prompt_style", r.prompt_style, "prompt style (default: the folder's)");
  line.option("--train.max_seq_length,--max_seq_length", o.max_seq_length,
              "maximum tokens per sample (default: the model's maximum)",
              {.least = 1, .shows_default = false});
  line.option("--batch_size,--train.micro_batch_size", r.micro_batch_size.size,
              "samples per forward pass", {1});
  add_precision(line, o.precision);
  add_quantize(line, o.quantize);
  add_accelerator(line, o.accelerator);
  line.list("--tasks", o.tasks,
            "questions with known answers instead of data, as NAME:FILE of JSON lines, scored as "
            "lm-evaluation-harness does: arc_easy, arc_challenge, hellaswag, mmlu or gsm8k; may be "
            "given several times");
  line.flag("--json", o.json, "print JSON");
  if (!line.parse(arguments)) return 0;
  if (!o.tasks.empty()) return evaluate_tasks(o);
  name_data(o);
  const ModelFiles files = find_model(o.folder, o.base, o.quantize);
  const RunInputs in = inputs_of(o, files);
  const int64_t batch = std::min(r.micro_batch_size.size, in.data.train.size());
  InferenceOptions options;
  options.device = parse_accelerator(o.accelerator);
  options.precision = inference_precision(o.precision.precision, files.config, options.device);
  options.tf32 = o.precision.tf32();
  options.limits = limits_of(in.data.train, batch, batch_options(r, in));
  tell_quantize(files);
  LoadedModel loaded(files, options);
  const auto start = std::chrono::steady_clock::now();
  const Evaluation e = evaluate_all(loaded.model(), in, r, batch);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  require(e.targets > 0, Fault::file,
          "there is nothing to evaluate: every token is masked or truncated");
  require(std::isfinite(e.mean()), Fault::file,
          "the loss is {}: the model's weights are damaged, or its training diverged{}", e.mean(),
          options.precision == Precision::f16_true ? ", or they exceed f16; try --precision 32-true"
                                                   : "");
  report(o, in, e, took.count());
  return 0;
}

}  // namespace capstan::cli
