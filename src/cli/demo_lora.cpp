#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/units.h"
#include "cli/demo_stage.h"
#include "cli/version.h"

namespace capstan::cli {
namespace {

constexpr int64_t kLoraExamples = 12000;  // training and held-out examples together
constexpr int64_t kSteps = 250;

// An ordinary LoRA recipe that keeps what the user set for the first stage.
Recipe adapter_recipe(const Recipe& first) {
  Recipe r = first;
  r.checkpoint_dir = (std::filesystem::path(first.out_dir) / "final").string();
  r.out_dir = std::filesystem::path(first.out_dir).lexically_normal().string();
  if (r.out_dir.ends_with('/')) r.out_dir.pop_back();
  r.out_dir += "-lora";
  r.max_steps = std::min(first.max_steps.value_or(kSteps), kSteps);
  r.lr = 5 * first.lr;  // the adapters' B starts at zero
  if (r.lr_warmup_steps) r.lr_warmup_steps = *first.lr_warmup_steps * 2 / 5;
  r.lora_r = 8;
  r.lora_alpha = 16;
  r.lora_dropout = 0;
  r.lora_query = r.lora_value = true;
  return r;
}

// Planned and measured memory of both runs, by category.
std::string memory_comparison(const MemoryUse& full, const MemoryUse& adapters) {
  const auto row = [](std::string_view name, auto... bytes) {
    return fmt::format("  {:<14}{:>14}{:>14}{:>18}{:>14}\n", name,
                       format_bytes(static_cast<double>(bytes))...);
  };
  std::string s = fmt::format("  {:<14}{:>14}{:>14}{:>18}{:>14}\n", "memory", "full: planned",
                              "measured", "LoRA: planned", "measured");
  for (size_t c = 0; c < kCategories; ++c)
    if (full.planned[c] > 0 || adapters.planned[c] > 0)
      s += row(name_of(static_cast<Category>(c)), full.planned[c], full.measured[c],
               adapters.planned[c], adapters.measured[c]);
  return s + row("total", full.planned_bytes, full.measured_bytes, adapters.planned_bytes,
                 adapters.measured_bytes);
}

}  // namespace

int adapt_to_new_task(const Recipe& first, const RunSummary& full, const StopToken& stop) {
  const Recipe recipe = adapter_recipe(first);
  const DemoTasks tasks(make_mirror_examples(static_cast<uint64_t>(recipe.seed), kLoraExamples));
  const ByteTokenizer tokenizer;
  TrainingRun run(recipe, Task::finetune_lora,
                  demo_inputs(model_of(recipe, Task::finetune_lora, &tokenizer, false), tasks),
                  {"capstan demo", CAPSTAN_BUILD, stop});
  const ModelSpec& spec = run.trainer().params().spec();
  log::say(
      "\nA new task: a word backwards, in capitals. The model is now frozen; LoRA adapters\n(rank "
      "{}, on queries and values) learn: {} of {} parameters, {:.2f}%.\n",
      recipe.lora_r, spec.trainable_count(), spec.parameter_count(),
      100 * static_cast<double>(spec.trainable_count()) /
          static_cast<double>(spec.parameter_count()));
  if (const int signal = train_and_ask(run, tasks.asked, stop)) return signal;
  const RunSummary summary = run.summary();
  log::say("\n{}.\n\n{}", verdict(summary), memory_comparison(full.memory, summary.memory));
  log::say(
      "  saved to {} (adapters only). The base model is unchanged:\n  without the adapters its "
      "answers are bit-identical to before. Try\n  {}",
      run.saved().string(), command_to_ask(run.saved(), tasks.asked));
  return 0;
}

}  // namespace capstan::cli
