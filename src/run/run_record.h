#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "checkpoint/training_state.h"
#include "train/trainer.h"

namespace capstan {

// Totals of a run so far. Checkpoints store them with the model; a resumed run continues them.
struct RunRecord {
  int64_t step = 0;
  int64_t tokens = 0, padding = 0, targets = 0;
  double seconds = 0, eval_seconds = 0, save_seconds = 0;  // seconds: training only
  std::optional<double> first_loss, last_loss, val_loss;
  std::optional<double> best_val_loss;  // of judge_validation; then the step, and others since
  int64_t best_step = 0, validations_since = 0;
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();

  // Counts one more step. Returns whether its loss counts: neither skipped nor masked.
  bool add(const StepResult& result);

  // Compares val_loss with the best so far. Returns whether it is better.
  bool judge_validation();

  static RunRecord of(const TrainingState& state);
  void write_to(TrainingState& state) const;
};

}  // namespace capstan
