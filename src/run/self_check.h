#pragma once

#include <string>

#include "data/batch/micro_batches.h"
#include "run/team.h"
#include "train/trainer.h"

namespace capstan {

// What a step of several ranks gave, beside the same step of one rank alone.
struct SelfCheck {
  Trainer::Probe ranks, alone;
  double allowed = 0;  // of each of the differences: allowed_difference
  // The gradient that differs most, relative to its largest value.
  double difference = 0;
  std::string parameter;

  bool agrees() const;
  // "loss 5.5904 on 4 ranks and 5.5904 on one; gradient norm …; …"
  std::string text(int size) const;
};

// How far rounding may move a gradient of a step of so many micro-batches from what one rank
// computes, relative to its largest value.
double allowed_difference(const TrainOptions& options, int64_t micro_batches);

// Gradients of what this rank owns, as f32, in the order of Parameters::owned.
std::vector<float> owned_gradients(Queue& q, const Parameters& params);

// Compares gradients of all ranks (`mine` are this one's) with those of `alone`, which rank 0 has;
// the others pass null and send theirs. Sets difference and parameter on rank 0.
void compare_gradients(SelfCheck& check, Queue& q, const Parameters* alone, const Parameters& ranks,
                       const std::vector<float>& mine, HostChannel& channel);

}  // namespace capstan
