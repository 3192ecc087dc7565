// How a run ends when numbers are not finite, and what is left to do after a kill near its end.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "run/run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

bool is_step_folder(const fs::path& dir) {
  return dir.filename().string().starts_with("step-");
}

// The step-* folder with the most steps that a run can go on from.
std::optional<FoundCheckpoint> newest_with_moments(const fs::path& out_dir) {
  std::optional<FoundCheckpoint> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    if (!is_step_folder(entry.path()) || !fs::exists(entry.path() / kOptimizerFile, error))
      continue;
    try {
      FoundCheckpoint c{entry.path(), read_state(entry.path())};
      if (newest && newest->state.step >= c.state.step) continue;
      verify_checkpoint(c.dir);
      newest = std::move(c);
    } catch (const Error&) {  // damaged: another may do
    }
  }
  return newest;
}

}  // namespace

// Samples that were no part of the step decide: where theirs are finite, that step's are to blame.
bool TrainingRun::weights_are_good(const MicroBatches& except) {
  const Dataset& train = inputs_.data.train;
  const auto bad = except.step_samples();
  std::vector<int64_t> others;
  for (int64_t i = 0; i < train.size() && std::ssize(others) < recipe_.micro_batch_size; ++i) {
    const bool counts = count_targets(train, std::span(&i, 1), inputs_.max_seq_length) > 0;
    if (counts && std::find(bad.begin(), bad.end(), i) == bad.end()) others.push_back(i);
  }
  if (others.empty()) return false;
  MicroBatches data = micro_batches(train);
  data.start(others);
  return trainer_->probe(data).finite();
}

void TrainingRun::end_not_finite(const Error& why, const MicroBatches& data) {
  if (task_ == Task::demo) throw why;
  const bool updated = dynamic_cast<const NotFiniteUpdate*>(&why) != nullptr;
  if (!updated && weights_are_good(data)) {
    const Error advised(why.fault(),
                        fmt::format("{}. Other samples are finite: look at those, lower "
                                    "optimizer.lr, or set train.max_norm; train.on_nan skip goes "
                                    "on without them",
                                    why.what()));
    keep_state(advised);
    throw advised;
  }
  // The loss before an update that failed was finite: every checkpoint up to then is good.
  try {
    saver_->wait();
    if (updated) good_ = saved_;
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
  }
  const std::string advised = fmt::format(
      "{}.{} Lower optimizer.lr, or set train.max_norm", why.what(),
      updated ? "" : " Other samples are not finite either: the weights have diverged.");
  std::error_code error;
  if (good_.empty() || !fs::exists(good_, error))
    fail(why.fault(), "{}. No saved state is known to be good: start anew", advised);
  // By its name, where there is a later one that is not good, or where it is elsewhere.
  const bool found = good_ == saved_ && good_.parent_path() == fs::path(recipe_.out_dir);
  fail(why.fault(), "{}. The newest good state is in {}, and --resume {} goes on from it", advised,
       good_.string(), found ? "auto" : good_.string());
}

void TrainingRun::count_skipped(const StepResult& result, const MicroBatches& data) {
  if (result.masked) return;
  skipped_ = result.skipped ? skipped_ + 1 : 0;
  if (skipped_ < recipe_.max_skipped) return;
  end_not_finite(
      Error(Fault::usage, fmt::format("step {}: {} steps in a row were left out, as many as "
                                      "train.max_skipped allows",
                                      step_, skipped_)),
      data);
}

fs::path TrainingRun::unfinished_mark() const {
  return fs::path(recipe_.out_dir) / ".capstan-unfinished";
}

bool TrainingRun::left_unfinished() const {
  if (task_ == Task::demo || step_ != length_.steps() || !resumes_here()) return false;
  const fs::path out = recipe_.out_dir;
  std::error_code error;
  return fs::exists(unfinished_mark(), error) || !fs::exists(report_file(), error) ||
         !fs::exists(out / "loss.svg", error);
}

void TrainingRun::load_final() {
  saved_ = fs::path(recipe_.out_dir) / "final";
  if (options_.lora) verify_if_ours(inputs_.model.folder);
  load_parameters(queue_, trainer_->params(), options_.lora ? inputs_.model.folder : saved_);
  if (options_.lora) load_adapter(queue_, trainer_->params(), saved_);
}

std::optional<double> TrainingRun::last_validation() const {
  for (const MetricsRow& row : metrics_->rows())
    if (row.step == step_ && row.val_loss && !row.loss && !row.learning_rate) return row.val_loss;
  return std::nullopt;
}

// A process that is killed after a save, and before that has deleted what it replaces, leaves one
// checkpoint more than are kept. Looks into them only then.
void TrainingRun::prune_checkpoints() const {
  if (!recipe_.keep_last || task_ == Task::demo) return;
  std::error_code error;
  int64_t there = 0;
  for (const auto& entry : fs::directory_iterator(recipe_.out_dir, error))
    there += is_step_folder(entry.path());
  if (there > *recipe_.keep_last) keep_last(recipe_.out_dir, static_cast<int>(*recipe_.keep_last));
}

std::string TrainingRun::how_to_train_further(const fs::path& model) const {
  const fs::path folder = model.has_filename() ? model : model.parent_path();
  if (const auto found = newest_with_moments(folder.parent_path()))
    return fmt::format("--resume {} goes on after its {} steps", found->dir.string(),
                       found->state.step);
  if (options_.lora)
    return fmt::format(
        "merge it (capstan merge_lora {}), and start a new run from the merged model with another "
        "--out_dir",
        model.string());
  return "start a new run from that folder with another --out_dir";
}

}  // namespace capstan
