#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "data/sampler.h"

namespace capstan {

void Dataset::add(std::span<const int32_t> tokens, int64_t first_target) {
  const auto n = static_cast<int64_t>(tokens.size());
  require(n >= 2, Fault::bug, "a sample needs two tokens or more, this has {}", n);
  require(first_target >= 0 && first_target <= n, Fault::bug,
          "the first target of a sample of {} tokens cannot be token {}", n, first_target);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  begin_.push_back(static_cast<int64_t>(tokens_.size()));
  first_target_.push_back(first_target);
  longest_ = std::max(longest_, n);
}

std::span<const int32_t> Dataset::tokens_of(int64_t sample) const {
  require(sample >= 0 && sample < size(), Fault::bug, "no sample {} in a dataset of {}", sample,
          size());
  const int64_t begin = begin_[at(sample)];
  return std::span(tokens_).subspan(at(begin), at(begin_[at(sample) + 1] - begin));
}

int64_t Dataset::inputs_of(int64_t sample, int64_t max_seq_length) const {
  return std::min(static_cast<int64_t>(tokens_of(sample).size()) - 1, max_seq_length);
}

int64_t Dataset::targets_of(int64_t sample, int64_t max_seq_length) const {
  const int64_t masked = std::max<int64_t>(first_target_of(sample) - 1, 0);
  return std::max<int64_t>(inputs_of(sample, max_seq_length) - masked, 0);
}

DatasetCounts count(const Dataset& dataset, int64_t max_seq_length) {
  DatasetCounts c;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t inputs = dataset.inputs_of(i, max_seq_length);
    const int64_t targets = dataset.targets_of(i, max_seq_length);
    c.inputs += inputs;
    c.targets += targets;
    c.longest = std::max(c.longest, inputs);
    c.truncated += inputs + 1 < static_cast<int64_t>(dataset.tokens_of(i).size());
    c.all_masked += targets == 0;
  }
  return c;
}

Split split(const Dataset& dataset, double validation_fraction, uint64_t seed) {
  require(validation_fraction >= 0 && validation_fraction < 1, Fault::usage,
          "the fraction of samples held out for validation must be at least 0 and below 1, not {}",
          validation_fraction);
  const int64_t n = dataset.size();
  require(validation_fraction == 0 || n >= 2, Fault::file,
          "cannot hold out a fraction of {} for validation: the data make {} sample(s), and one "
          "must stay for training. Give more data or separate validation data",
          validation_fraction, n);
  int64_t held = 0;
  if (validation_fraction > 0)
    held =
        std::clamp<int64_t>(std::llround(validation_fraction * static_cast<double>(n)), 1, n - 1);

  std::vector<int64_t> order(static_cast<size_t>(n));
  // Not the sampler's site: the held-out samples must not be the first of an epoch's order.
  permute(order, Rng({.seed = seed, .site = site::shuffle + 1}));
  std::vector<bool> is_held(order.size());
  for (int64_t i = 0; i < held; ++i)
    is_held[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;

  Split parts;
  for (int64_t i = 0; i < n; ++i) {
    Dataset& part = is_held[static_cast<size_t>(i)] ? parts.validation : parts.train;
    part.add(dataset.tokens_of(i), dataset.first_target_of(i));
  }
  return parts;
}

}  // namespace capstan
