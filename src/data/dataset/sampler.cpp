#include "data/dataset/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace capstan {

void permute(std::span<int64_t> order, const Rng& rng) {
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i, i)]);
}

Sampler::Sampler(int64_t samples, int64_t global_batch, uint64_t seed, bool shuffled)
    : global_batch_(global_batch), seed_(seed), shuffled_(shuffled) {
  require(samples > 0, Fault::file, "the data has no samples: there is nothing to train on");
  require(global_batch > 0, Fault::usage, "the global batch must be 1 or more, not {}",
          global_batch);
  order_.resize(static_cast<size_t>(samples));
}

int64_t Sampler::steps_per_epoch() const {
  return (static_cast<int64_t>(order_.size()) + global_batch_ - 1) / global_batch_;
}

std::span<const int64_t> Sampler::ids(int64_t step) {
  require(step >= 0, Fault::bug, "steps count from 0, not {}", step);
  if (const int64_t epoch = epoch_of(step); epoch != drawn_epoch_) draw(epoch);
  const auto samples = static_cast<int64_t>(order_.size());
  const int64_t begin = step % steps_per_epoch() * global_batch_;
  const int64_t count = std::min(global_batch_, samples - begin);
  return std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

void Sampler::draw(int64_t epoch) {
  if (shuffled_) {
    permute(order_,
            Rng({.seed = seed_, .step = static_cast<uint64_t>(epoch), .site = site::shuffle}));
  } else {
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  drawn_epoch_ = epoch;
}

}  // namespace capstan
