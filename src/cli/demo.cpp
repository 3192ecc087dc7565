#include <csignal>

#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/demo_stage.h"
#include "cli/recipe_arguments.h"
#include "cli/version.h"

namespace capstan::cli {
namespace {

constexpr int64_t kDemoExamples = 44500;  // training and held-out examples together

Recipe demo_recipe() {
  Recipe r = defaults_of(Task::demo);
  r.seed = 42;
  r.global_batch_size = 64;
  r.micro_batch_size = 64;
  r.max_steps = 1000;
  r.max_seq_length = kDemoPositions;
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

NamedModel demo_model(const Recipe& r) {
  NamedModel m;
  m.config = model_by_sizes(r, ByteTokenizer());
  m.config.init_std = 0.06;  // a narrow model learns faster from larger initial weights
  m.config.tied = r.tie_embeddings.value_or(false);
  m.name = "the demo model";
  return m;
}

// Runs the first stage and fills in its summary. Returns what train_and_ask does.
int learn_tasks(const Recipe& recipe, RunSummary& summary, const StopToken& stop) {
  const DemoTasks tasks(make_examples(static_cast<uint64_t>(recipe.seed), kDemoExamples));
  TrainingRun run(recipe, Task::demo, demo_inputs(demo_model(recipe), tasks),
                  {"capstan demo", CAPSTAN_BUILD, stop});
  log::say("A model of {} parameters learns {} small tasks. {} more are held out.\n\n{}",
           format_count(static_cast<double>(run.trainer().params().spec().parameter_count())),
           tasks.train.size(), tasks.held_out, plan_table(run.plan()));
  if (const int signal = train_and_ask(run, tasks.asked, stop)) return signal;
  log::say("\n{}\n  saved to {}; report: {}. Try\n  {}", run.report(), run.saved().string(),
           run.report_file().string(), command_to_ask(run.saved(), tasks.asked));
  summary = run.summary();
  return 0;
}

}  // namespace

int demo(const Arguments& arguments, const StopToken& stop) {
  const auto recipe =
      recipe_from(arguments, Task::demo, "trains a small model from scratch, then adapters for it",
                  demo_recipe());
  if (!recipe) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // keep training if the reader of a pipe goes away
  RunSummary full;
  int signal = learn_tasks(*recipe, full, stop);
  if (signal == 0) signal = adapt_to_new_task(*recipe, full, stop);
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace capstan::cli
