#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/launch.h"
#include "cli/recipe_arguments.h"
#include "cli/stop_signals.h"
#include "cli/version.h"
#include "report/summary.h"
#include "report/work_bar.h"
#include "run/automatic.h"
#include "run/run.h"
#include "run/run_folder.h"
#include "train/kept_input.h"
#include "train/watched_inputs.h"

namespace capstan::cli {
namespace {

std::string command_text(Task task, const Arguments& arguments) {
  return fmt::format("capstan {} {}", name_of(task), in_shell(arguments));
}

void describe(const TrainingRun& run, const ModelSpec& spec) {
  const RunInputs& in = run.inputs();
  const DatasetCounts c = count(in.data.train, in.max_seq_length);
  log::say("{}: {} trainable parameters, {} frozen", in.model.name,
           format_count(static_cast<double>(spec.trainable_count())),
           format_count(static_cast<double>(spec.parameter_count() - spec.trainable_count())));
  log::say("{}{}, {} held out{}; the longest sequence has {}{}",
           count(in.data.train.size(), "training sample"),
           in.data.from_cache ? " (from the token cache)" : "", in.data.validation.size(),
           in.data.default_fraction ? " (5%, the default)" : "", count(c.longest + 1, "token"),
           c.truncated > 0
               ? fmt::format(", {} {} cut", c.truncated, c.truncated == 1 ? "is" : "are")
               : "");
  const RunLength& length = run.length();
  log::say(
      "{}, {} per epoch\n\n{}",
      length.limited() ? count(length.steps(), "step") : "as many steps as train.max_time allows",
      length.steps_per_epoch(), plan_table(run.plan()));
}

int interrupted_at_end(const TrainingRun& run) {
  if (run.interrupted() == 0) return 0;
  log::warn(
      "interrupted at the end: the final model is complete, but {}. Run the same command with "
      "--resume auto to complete it",
      run.missing());
  return 128 + run.interrupted();
}

// The run, after it is planned.
int carry_out(TrainingRun& run, NothingToSave& nothing_to_save) {
  describe(run, run.trainer().params().spec());
  run.initialize();
  if (run.finished() && run.left_unfinished()) {
    log::say(
        "{} has all {} steps; only what follows them is missing (the last validation, the report, "
        "what trackers get), and is made now",
        run.saved().string(), run.steps());
    nothing_to_save.over();
    run.finish_rest();
    if (run.leads()) log::say("\n{}\n  report: {}", run.report(), run.report_file().string());
    return interrupted_at_end(run);
  }
  if (run.finished()) {
    const auto early = run.why_early();
    log::say("{} has {}: nothing left to do", run.saved().string(),
             early                       ? fmt::format("all that there will be ({})", *early)
             : run.length().steps() == 1 ? "its step"
                                         : fmt::format("all {} steps", run.length().steps()));
    return 0;
  }
  run.verify();
  nothing_to_save.over();
  run.train();
  if (run.interrupted() != 0 && !run.trained()) {
    log::warn("{}; there was nothing to save", Stopped(run.interrupted()).what());
    return 128 + run.interrupted();
  }
  if (run.interrupted() != 0) {
    log::warn(
        "interrupted after step {}{}; the checkpoint is {}. Run the same command with --resume "
        "auto to continue",
        run.steps(), run.length().of_steps(), run.saved().string());
    return 128 + run.interrupted();
  }
  run.finish();
  if (run.leads())
    log::say("\n{}\n  saved to {}; report: {}", run.report(), run.saved().string(),
             run.report_file().string());
  if (const auto why = run.why_early())
    log::say("{}", *why);
  else if (!run.complete())
    log::say(
        "train.max_time ended after step {}; run the same command with a longer one and --resume "
        "auto to continue",
        run.steps());
  return interrupted_at_end(run);
}

// What one rank does for all.
bool only_prints(const Arguments& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "--print_config";
  });
}

// Folders that this process has begun there, where no other process writes.
void remove_parts(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().string().ends_with(".capstan-part"))
      std::filesystem::remove_all(entry.path(), error);
}

// What all ranks of a run have in common.
struct Job {
  Recipe recipe;
  Task task;
  SharedInputs inputs;
  Invocation invocation;
};

// `on_failure` is called while the run still exists, whose memory other ranks may be using.
template <class OnFailure>
int run_rank(const Job& job, NothingToSave& nothing_to_save, Communicator group,
             const OnFailure& on_failure) {
  const log::Quiet quiet(group.rank() != 0);
  const Recipe recipe = resolve_automatic(job.recipe, job.task, *job.inputs, group);
  TrainingRun run(recipe, job.task, job.inputs, job.invocation, group);
  try {
    return carry_out(run, nothing_to_save);
  } catch (...) {
    const std::exception_ptr why = run.cause_of(std::current_exception());
    on_failure(why);
    std::rethrow_exception(why);
  }
}

// One command that trains.
class Training {
 public:
  Training(Task task, const Arguments& arguments, std::string_view summary, StopToken stop)
      : task_(task), arguments_(arguments), summary_(summary), stop_(std::move(stop)) {}

  // This process, with threads for further ranks.
  int run_here() {
    if (!only_prints(arguments_)) require_no_copy(name_of(task_));
    auto recipe = read_recipe();
    if (!recipe) return 0;
    const Placement placement = place_ranks(*recipe);
    if (placement.ranks == 1) warn_of_idle_tasks(name_of(task_));
    lock(*recipe);  // before anything that takes time or memory
    *recipe = with_kept_input(*recipe, true);
    const Job job = job_of(*recipe, true);
    return run_in_threads(placement, *recipe, [&](Communicator group) {
      return run_rank(job, nothing_to_save_, group, [&](std::exception_ptr why) {
        Communicator(group).abort(failure_of(why).what);
      });
    });
  }

  // This process, as one of those that mpirun started.
  int run_launched(Ranks ranks) {
    const log::Quiet quiet(ranks.rank != 0);
    if (ranks.rank != 0 && only_prints(arguments_)) return 0;
    // Read before MPI starts, which may take as long as the recipe says. What is wrong with it, all
    // ranks tell together.
    std::optional<Recipe> recipe;
    std::exception_ptr wrong;
    try {
      recipe = read_recipe();
      if (!recipe) return 0;
    } catch (...) {
      leave_if_stopped(std::current_exception());
      wrong = std::current_exception();
    }
    return run_as_launched(recipe.value_or(Recipe()).timeout, [&](LaunchedRank& rank) {
      if (wrong) std::rethrow_exception(wrong);
      try {
        return run_as(rank, *recipe);
      } catch (...) {
        leave_if_stopped(std::current_exception());
        throw;
      }
    });
  }

 private:
  int run_as(LaunchedRank& rank, Recipe& recipe) {
    const bool leads = rank.group().rank() == 0;
    rank.start(recipe);
    stop_.check();
    if (leads) lock(recipe);
    // The first rank may write the token cache that the others read.
    std::optional<Job> job;
    rank.in_turn([&] {
      recipe = with_kept_input(recipe, leads);
      job = job_of(recipe, leads);
    });
    const int code = run_rank(*job, nothing_to_save_, rank.group(), [&](std::exception_ptr why) {
      leave_if_stopped(why);
      rank.fail_all(why);
    });
    nothing_to_save_.over();
    out_dir_.reset();  // before this rank waits for the others
    return code;
  }

  std::optional<Recipe> read_recipe() const {
    auto recipe = recipe_from(arguments_, task_, summary_, defaults_of(task_), Inputs::of_run);
    stop_.check();
    return recipe;
  }

  void lock(const Recipe& recipe) {
    folder_ = recipe.out_dir;
    out_dir_.emplace(recipe.out_dir);
    check_outputs(recipe);
  }
  void clean_up() {
    if (out_dir_) remove_parts(folder_);
    out_dir_.reset();
  }

  Job job_of(const Recipe& recipe, bool shown) const {
    const char* unit = is_text(recipe.data) ? "bytes" : "records";
    WorkBar bar("tokenizing", shown);
    auto inputs = find_inputs(recipe, task_, [&](int64_t done, int64_t total) {
      stop_.check();
      bar.tell(done, total, unit);
    });
    return {recipe,
            task_,
            std::make_shared<const RunInputs>(std::move(inputs)),
            {command_text(task_, arguments_), CAPSTAN_BUILD, stop_}};
  }

  // Stopped ends this process without the others, which get the signal as well, or another one by
  // mpirun.
  void leave_if_stopped(std::exception_ptr why) {
    try {
      std::rethrow_exception(why);
    } catch (const Stopped& e) {
      nothing_to_save_.leave(e.signal());
    } catch (...) {
    }
  }

  Task task_;
  const Arguments& arguments_;
  std::string_view summary_;
  StopToken stop_;
  std::filesystem::path folder_;
  std::optional<FolderLock> out_dir_;
  NothingToSave nothing_to_save_{[this] { clean_up(); }};
};

int train(Task task, const Arguments& arguments, std::string_view summary, const StopToken& stop) {
  std::signal(SIGPIPE, SIG_IGN);  // keep training if the reader of a pipe goes away
  Training training(task, arguments, summary, stop);
  const auto ranks = launched_ranks();
  return ranks ? training.run_launched(*ranks) : training.run_here();
}

}  // namespace

int pretrain(const Arguments& arguments, const StopToken& stop) {
  return train(Task::pretrain, arguments, "trains a model on text", stop);
}

int finetune_full(const Arguments& arguments, const StopToken& stop) {
  return train(Task::finetune_full, arguments, "trains all weights of a model on your data", stop);
}

int finetune_lora(const Arguments& arguments, const StopToken& stop) {
  return train(Task::finetune_lora, arguments,
               "trains small adapters for a frozen model, which may be quantized", stop);
}

}  // namespace capstan::cli
