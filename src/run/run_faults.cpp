// How a run ends when numbers are not finite.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/shell_words.h"
#include "run/run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

}  // namespace

// Probes samples outside the step: if they give finite values, that step's samples are the cause.
bool TrainingRun::weights_are_good(const MicroBatches& except) {
  const Dataset& train = inputs_.data.train;
  const auto bad = except.step_samples();
  std::vector<int64_t> others;
  for (int64_t i = 0; i < train.size() && std::ssize(others) < recipe_.micro_batch_size.size; ++i) {
    const bool counts = count_targets(train, std::span(&i, 1), inputs_.max_seq_length) > 0;
    if (counts && std::find(bad.begin(), bad.end(), i) == bad.end()) others.push_back(i);
  }
  if (others.empty()) return false;
  MicroBatches data = micro_batches(train);
  data.start(others);
  return trainer_->probe(data).finite();
}

void TrainingRun::keep_state(const Error& why) {
  if (record_.step == first_step()) return;
  const fs::path here = folder_.checkpoint(record_.step);
  bool saved = true;
  try {
    saver_->wait();
    if (saved_ != here) {
      SaveRequest request = save_request(here, false);
      request.keep = 0;  // training may have diverged earlier: keep older checkpoints
      saver_->save(std::move(request));
      saved_ = here;
    }
    saver_->wait();
  } catch (const std::exception&) {  // the original error matters more
    saved = false;
  }
  for (const int others : team_.gather(saved ? 1 : 0)) saved = saved && others != 0;
  if (!saved) return;
  fail(why.fault(), "{}. The state after {} is saved in {}; --resume auto continues from it",
       why.what(), length_.counted(record_.step), saved_.string());
}

void TrainingRun::end_not_finite(const Error& why, const MicroBatches& data) {
  if (folder_.scratch()) throw why;
  const bool updated = dynamic_cast<const NotFiniteUpdate*>(&why) != nullptr;
  if (!updated && weights_are_good(data)) {
    const Error advised(why.fault(),
                        fmt::format("{}. Other samples give finite values: check these samples, "
                                    "lower optimizer.lr, or set train.max_norm; train.on_nan skip "
                                    "continues without them",
                                    why.what()));
    keep_state(advised);
    throw advised;
  }
  // The loss before the failed update was finite, so every checkpoint up to then is good.
  try {
    saver_->wait();
    if (updated) good_ = saved_;
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
  }
  const std::string advised = fmt::format(
      "{}.{} Lower optimizer.lr, or set train.max_norm", why.what(),
      updated ? "" : " Other samples do not give finite values either: training has diverged.");
  std::error_code error;
  if (good_.empty() || !fs::exists(good_, error))
    fail(why.fault(), "{}. No checkpoint is known to be good: start a new run", advised);
  // By name, if a later checkpoint is not good, or if it is in another folder.
  const bool found = good_ == saved_ && good_.parent_path() == folder_.path();
  fail(why.fault(), "{}. The newest good checkpoint is {}; --resume {} continues from it", advised,
       good_.string(), found ? "auto" : in_shell(good_.string()));
}

void TrainingRun::count_skipped(const StepResult& result, const MicroBatches& data) {
  if (result.masked) return;
  skipped_ = result.skipped ? skipped_ + 1 : 0;
  if (skipped_ < recipe_.max_skipped) return;
  end_not_finite(Error(Fault::usage, fmt::format("step {}: skipped {} steps in a row, the limit of "
                                                 "train.max_skipped",
                                                 record_.step, skipped_)),
                 data);
}

}  // namespace capstan
