#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"

namespace capstan {

// Fills `order` with a uniformly random permutation of 0 … order.size()-1 (Fisher–Yates).
void permute(std::span<int64_t> order, const Rng& rng);

// Which samples each optimizer step uses: a function of (samples, global batch, seed, step) only,
// so resuming needs just the step, and every rank of any mesh agrees.
//
// Epoch e is a permutation of the samples drawn from (seed, e), cut into global batches. The last
// batch of an epoch has the remainder, so an epoch uses each sample exactly once and no step spans
// two epochs.
class Sampler {
 public:
  // If `shuffled`, the order depends on the seed; otherwise it is 0, 1, 2 … in every epoch (for
  // evaluation). Throws Fault::file if there are no samples.
  Sampler(int64_t samples, int64_t global_batch, uint64_t seed, bool shuffled = true);

  int64_t steps_per_epoch() const;
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch(); }

  // Any step, in any order: cheap within the epoch of the last call, otherwise that epoch is drawn
  // again. The result is valid until a call for another epoch. Allocates nothing.
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
