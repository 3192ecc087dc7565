#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"

namespace capstan {

// Fills `order` with 0 … order.size()-1, every order as likely as any other (Fisher–Yates).
void permute(std::span<int64_t> order, const Rng& rng);

// Which samples each optimizer step takes: a function of (samples, global batch, seed, step) and of
// nothing else, so that resuming needs the step alone and every rank of any mesh agrees.
//
// Epoch e is a permutation of the samples drawn from (seed, e). It is cut into global batches; the
// last one of an epoch holds what is left, so an epoch takes each sample exactly once and no step
// straddles two.
class Sampler {
 public:
  // An order that is `shuffled` depends on the seed; one that is not is 0, 1, 2 … in every epoch
  // (for evaluation). Throws Fault::file when there are no samples.
  Sampler(int64_t samples, int64_t global_batch, uint64_t seed, bool shuffled = true);

  int64_t steps_per_epoch() const;
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch(); }

  // Any step, in any order: cheap within the epoch last asked for, else that epoch is drawn anew.
  // The result is valid until another epoch is asked for. Allocates nothing.
  std::span<const int64_t> ids(int64_t step);

 private:
  void draw(int64_t epoch);

  int64_t global_batch_;
  uint64_t seed_;
  bool shuffled_;
  int64_t drawn_epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace capstan
