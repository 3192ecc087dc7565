#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "cli/app.h"
#include "data/sampler.h"
#include "data/tokenizer_folder.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

struct Options {
  std::string folder, data, precision;
  Recipe recipe = defaults_of(Task::finetune_full);
  int64_t max_seq_length = 0;  // 0: what the model can
  bool json = false;
};

// A path says what it holds: text, or records.
void name_data(Options& o) {
  Recipe& r = o.recipe;
  r.val_split_fraction = 0;
  const bool text = o.data.ends_with(".txt") || o.data.ends_with(".md");
  r.data = text || (o.data.empty() && !r.train_data_path.empty()) ? "TextFiles" : "JSON";
  if (!o.data.empty()) (text ? r.train_data_path : r.json_path) = o.data;
  if (o.max_seq_length > 0) r.max_seq_length = o.max_seq_length;
}

RunInputs inputs_of(const Options& o) {
  RunInputs in;
  in.tokenizer_dir = find_checkpoint_dir(o.folder);
  in.tokenizer = load_tokenizer(in.tokenizer_dir);
  Recipe r = o.recipe;
  r.checkpoint_dir = o.folder;
  in.model = model_of(r, Task::finetune_full, in.tokenizer.get(), false);
  in.max_seq_length = max_seq_length_of(r, in.model.config);
  DataOptions options = data_options(r, in.max_seq_length);
  options.chat_template = chat_template_of(in.tokenizer_dir);
  // Asked as it was trained to be.
  if (const PromptStyle* style = read_prompt_style(in.tokenizer_dir);
      options.style.empty() && style != nullptr && !style->name.empty())
    options.style = style->name;
  in.data = load_data(options, *in.tokenizer);
  for (const std::string& line : warnings(in.data.lint)) log::warn("{}", line);
  return in;
}

void report(const Options& o, const RunInputs& in, const Evaluation& e, double seconds) {
  const DatasetCounts c = count(in.data.train, in.max_seq_length);
  if (o.json) {
    const nlohmann::ordered_json out = {
        {"loss", e.mean()},         {"perplexity", std::exp(e.mean())},
        {"tokens", e.targets},      {"samples", in.data.train.size()},
        {"truncated", c.truncated}, {"seconds", seconds}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("loss {:.6f}, perplexity {:.4f}, over {} tokens of {} samples\n", e.mean(),
             std::exp(e.mean()), e.targets, in.data.train.size());
  log::info("{} in {}, {} tok/s", format_count(static_cast<double>(c.inputs)),
            format_duration(seconds), format_count(static_cast<double>(c.inputs) / seconds));
}

}  // namespace

int evaluate(const Arguments& arguments) {
  CLI::App app("Loss and perplexity of a model on data, every token counted once.",
               "capstan evaluate");
  Options o;
  Recipe& r = o.recipe;
  r.micro_batch_size = 8;
  app.add_option("checkpoint_dir", o.folder, "folder of the model")->required();
  app.add_option("--data", o.data, ".txt, .json or .jsonl file");
  app.add_option("--data.json_path", r.json_path, "records: .json, .jsonl or a folder");
  app.add_option("--data.train_data_path", r.train_data_path, "text: a file or a folder of .txt");
  app.add_flag("--data.mask_prompt,!--data.no_mask_prompt", r.mask_prompt,
               "count the responses alone");
  app.add_option("--data.prompt_style", r.prompt_style, "else as the folder says");
  app.add_option("--train.max_seq_length,--max_seq_length", o.max_seq_length,
                 "tokens of a sample at most; else what the model can")
      ->check(number(1));
  app.add_option("--batch_size,--train.micro_batch_size", r.micro_batch_size, "samples per pass")
      ->capture_default_str()
      ->check(number(1));
  add_precision(app, o.precision);
  app.add_flag("--json", o.json, "print JSON");
  if (!parse(app, arguments)) return 0;
  name_data(o);
  const RunInputs in = inputs_of(o);
  const int64_t batch = std::min(r.micro_batch_size, in.data.train.size());
  LoadedModel loaded(in.tokenizer_dir,
                     {.model = in.model.config,
                      .precision = inference_precision(o.precision, in.model.config),
                      .limits = limits_of(in.data.train, batch, batch_options(r, in))});
  Sampler in_order(in.data.train.size(), in.data.train.size(), 0, false);
  MicroBatches data(in.data.train, batch, batch_options(r, in));
  data.start(in_order.ids(0));
  const auto start = std::chrono::steady_clock::now();
  const Evaluation e = loaded.model().evaluate(data);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  require(e.targets > 0, Fault::file, "there is nothing to count: every token is masked or cut");
  report(o, in, e, took.count());
  return 0;
}

}  // namespace capstan::cli
