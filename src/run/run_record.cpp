#include "run/run_record.h"

namespace capstan {

bool RunRecord::add(const StepResult& r) {
  ++step;
  tokens += r.tokens - r.padding;
  padding += r.padding;
  targets += r.targets;
  if (r.skipped || r.masked) return false;
  if (!first_loss) first_loss = r.loss;
  last_loss = r.loss;
  return true;
}

bool RunRecord::judge_validation() {
  const bool better = !best_val_loss || *val_loss < *best_val_loss;
  ++validations_since;
  if (!better) return false;
  best_val_loss = val_loss;
  best_step = step;
  validations_since = 0;
  return true;
}

RunRecord RunRecord::of(const TrainingState& s) {
  RunRecord r;
  r.step = s.step;
  r.tokens = s.tokens;
  r.padding = s.padding;
  r.targets = s.targets;
  r.seconds = s.seconds;
  r.eval_seconds = s.eval_seconds;
  r.save_seconds = s.save_seconds;
  if (s.started > 0) r.started = std::chrono::system_clock::from_time_t(s.started);
  r.first_loss = s.first_loss;
  r.last_loss = s.last_loss;
  r.val_loss = s.val_loss;
  r.best_val_loss = s.best_val_loss;
  r.best_step = s.best_step;
  r.validations_since = s.validations_since;
  return r;
}

void RunRecord::write_to(TrainingState& s) const {
  s.step = step;
  s.tokens = tokens;
  s.padding = padding;
  s.targets = targets;
  s.seconds = seconds;
  s.eval_seconds = eval_seconds;
  s.save_seconds = save_seconds;
  s.started = std::chrono::system_clock::to_time_t(started);
  s.first_loss = first_loss;
  s.last_loss = last_loss;
  s.val_loss = val_loss;
  s.best_val_loss = best_val_loss;
  s.best_step = best_step;
  s.validations_since = validations_since;
}

}  // namespace capstan
