#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/recipe_arguments.h"
#include "data/tasks.h"
#include "report/summary.h"
#include "train/run.h"

namespace capstan::cli {
namespace {

constexpr int64_t kExamples = 44500;  // to train on and to hold out
constexpr int64_t kAsked = 200;       // held-out tasks that the model is asked
constexpr int64_t kPositions = 64;    // longest prompt and answer together
// The demo makes its own data, with tasks of at most kPositions, and a new model.
constexpr std::array<std::string_view, 5> kUnused = {
    "model_config", "initial_checkpoint_dir", "data.train_data_path", "data.val_split_fraction",
    "train.max_seq_length"};

Recipe demo_recipe() {
  Recipe r;
  r.out_dir = "out/demo";
  r.global_batch_size = 64;
  r.micro_batch_size = 64;
  r.max_steps = 1000;
  r.max_seq_length = kPositions;
  r.lr = 2e-3;
  r.lr_warmup_steps = 50;
  r.min_lr = 0;
  r.log_interval = 50;
  r.eval_interval = 200;
  r.eval_max_iters = 4;
  return r;
}

ModelConfig demo_model(const Recipe& r, const Tokenizer& tokenizer) {
  ModelConfig c = model_by_sizes(r, tokenizer);
  c.init_std = 0.06;  // a narrow model starts faster from larger weights
  return c;
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
      recipe_from(arguments, "demo", "watch a small model learn", demo_recipe(), kUnused);
  if (!recipe) return 0;
  const ByteTokenizer tokenizer;
  ExampleSplit examples = split(make_examples(static_cast<uint64_t>(recipe->seed), kExamples));
  const auto asked =
      std::span(examples.held_out).first(std::min<size_t>(examples.held_out.size(), kAsked));
  const ModelConfig model = demo_model(*recipe, tokenizer);

  fmt::print("A model of {} parameters learns {} small tasks. {} others are held out.\n\n",
             format_count(static_cast<double>(make_spec(model).parameter_count())),
             examples.train.size(), examples.held_out.size());
  TrainingRun run(*recipe, model, make_dataset(examples.train, tokenizer, true),
                  make_dataset(asked, tokenizer, true), kPositions);
  fmt::print("{}\n", plan_table(run.plan()));
  const std::filesystem::path folder = std::filesystem::path(recipe->out_dir) / "final";
  run.check_save(folder);
  run.initialize();
  const auto percent = [&](int64_t right) {
    return 100.0 * static_cast<double>(right) / static_cast<double>(asked.size());
  };
  const int64_t before = exact_matches(run, tokenizer, asked);
  fmt::print("before training: {} of {} held-out tasks answered exactly ({:.0f}%)\n", before,
             asked.size(), percent(before));
  run.train();
  if (run.interrupted() != 0) {
    log::warn("interrupted after step {} of {}; nothing is saved", run.steps(), recipe->max_steps);
    return 128 + run.interrupted();
  }
  const int64_t after = exact_matches(run, tokenizer, asked);
  fmt::print("after training:  {} of {} held-out tasks answered exactly ({:.0f}%)\n\n", after,
             asked.size(), percent(after));
  show_samples(run, tokenizer, asked.first(std::min<size_t>(asked.size(), 8)));

  run.save(folder);
  fmt::print("\n{}\n  saved to {}; try\n  capstan generate {} --temperature 0 --prompt $'{}\\n'\n",
             run.report(), folder.string(), folder.string(),
             asked[0].prompt.substr(0, asked[0].prompt.find('\n')));
  return 0;
}

}  // namespace capstan::cli
