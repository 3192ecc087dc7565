#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "data/tasks.h"
#include "report/summary.h"
#include "train/run.h"

namespace capstan::cli {
namespace {

constexpr int64_t kExamples = 44500;  // to train on and to hold out
constexpr int64_t kAsked = 200;       // held-out tasks that the model is asked
constexpr int64_t kPositions = 64;    // longest prompt and answer together

Recipe demo_recipe() {
  Recipe r = defaults_of(Task::demo);
  r.seed = 42;
  r.global_batch_size = 64;
  r.micro_batch_size = 64;
  r.max_steps = 1000;
  r.max_seq_length = kPositions;
  r.lr = 2e-3;
  r.weight_decay = 0.1;
  r.betas = {0.9, 0.95};
  r.max_norm = 1;
  r.lr_warmup_steps = 50;
  r.save_interval = std::nullopt;
  r.log_interval = 50;
  r.eval_interval = 200;
  r.eval_max_iters = 4;
  r.eval_max_new_tokens = std::nullopt;
  return r;
}

RunInputs demo_inputs(const Recipe& r, const std::vector<Example>& train,
                      std::span<const Example> held_out) {
  RunInputs in;
  in.tokenizer = std::make_shared<ByteTokenizer>();
  in.model.config = model_by_sizes(r, *in.tokenizer);
  in.model.config.init_std = 0.06;  // a narrow model starts faster from larger weights
  in.model.config.tied = r.tie_embeddings.value_or(false);
  in.model.name = "the demonstration's model";
  in.data.train = make_dataset(train, *in.tokenizer, true);
  in.data.validation = make_dataset(held_out, *in.tokenizer, true);
  in.max_seq_length = kPositions;
  in.is_text = true;
  in.sample_positions = kPositions;
  return in;
}

std::string answer(TrainingRun& run, const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  ids.insert(ids.begin(), *tokenizer.bos());
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.sampling.temperature = 0;
  options.stop_ids = {tokenizer.eos()};
  return tokenizer.decode(capstan::generate(run.queue(), *run.trainer().decoder(), ids, options));
}

// Of the first kAsked tasks, how many are answered exactly.
int64_t exact_matches(TrainingRun& run, const Tokenizer& tokenizer,
                      std::span<const Example> examples) {
  int64_t right = 0;
  for (const Example& e : examples) right += answer(run, tokenizer, e.prompt) == e.response;
  return right;
}

void show_samples(TrainingRun& run, const Tokenizer& tokenizer, std::span<const Example> examples) {
  for (const Example& e : examples) {
    const std::string got = answer(run, tokenizer, e.prompt);
    const std::string asked = e.prompt.substr(0, e.prompt.find_last_not_of('\n') + 1);
    fmt::print("  {:<20} → {:<10} {}\n", asked, got,
               got == e.response ? "right" : fmt::format("wrong: {}", e.response));
  }
}

}  // namespace

int demo(const Arguments& arguments) {
  const auto recipe =
      recipe_from(arguments, Task::demo, "shows a small model learn, from nothing", demo_recipe());
  if (!recipe) return 0;
  const ByteTokenizer tokenizer;
  const ExampleSplit examples =
      split(make_examples(static_cast<uint64_t>(recipe->seed), kExamples));
  const auto asked =
      std::span(examples.held_out).first(std::min<size_t>(examples.held_out.size(), kAsked));
  TrainingRun run(*recipe, Task::demo, demo_inputs(*recipe, examples.train, asked), "capstan demo");

  fmt::print("A model of {} parameters learns {} small tasks. {} others are held out.\n\n{}\n",
             format_count(static_cast<double>(run.trainer().params().spec().parameter_count())),
             examples.train.size(), examples.held_out.size(), plan_table(run.plan()));
  run.initialize();
  run.rehearse();
  const auto percent = [&](int64_t right) {
    return 100.0 * static_cast<double>(right) / static_cast<double>(asked.size());
  };
  const int64_t before = exact_matches(run, tokenizer, asked);
  fmt::print("before training: {} of {} held-out tasks answered exactly ({:.0f}%)\n", before,
             asked.size(), percent(before));
  run.train();
  if (run.interrupted() != 0) {
    log::warn("interrupted after step {} of {}", run.steps(), run.length().steps());
    return 128 + run.interrupted();
  }
  const int64_t after = exact_matches(run, tokenizer, asked);
  fmt::print("after training:  {} of {} held-out tasks answered exactly ({:.0f}%)\n\n", after,
             asked.size(), percent(after));
  show_samples(run, tokenizer, asked.first(std::min<size_t>(asked.size(), 8)));
  run.finish();
  fmt::print(
      "\n{}\n  saved to {}; the report is {}/report.html. Try\n"
      "  capstan generate {} --temperature 0 --prompt $'{}\\n'\n",
      run.report(), run.saved().string(), recipe->out_dir, run.saved().string(),
      asked[0].prompt.substr(0, asked[0].prompt.find('\n')));
  return 0;
}

}  // namespace capstan::cli
