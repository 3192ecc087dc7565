#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace capstan {

// Tokenized samples, all in one piece of memory. A sample's number (from 0, in order of adding) is
// its name everywhere: in the sampler's order, in checkpoints and in messages.
class Dataset {
 public:
  // `first_target` is the index of the first token that counts for the loss; those before it are
  // seen, not learned (a masked prompt). 0 and 1 are the same, since nothing predicts token 0. With
  // first_target == tokens.size() nothing counts. At least two tokens (Fault::bug).
  void add(std::span<const int32_t> tokens, int64_t first_target);

  int64_t size() const { return static_cast<int64_t>(first_target_.size()); }
  std::span<const int32_t> tokens_of(int64_t sample) const;
  int64_t first_target_of(int64_t sample) const { return first_target_[at(sample)]; }
  int64_t longest() const { return longest_; }  // tokens of the longest sample
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

  // What a sample gives to a batch: token t is the input whose label is token t + 1, so n tokens
  // make n - 1 inputs, of which the first `max_seq_length` are kept.
  int64_t inputs_of(int64_t sample, int64_t max_seq_length) const;
  // Those of them whose label counts.
  int64_t targets_of(int64_t sample, int64_t max_seq_length) const;

 private:
  static size_t at(int64_t sample) { return static_cast<size_t>(sample); }

  std::vector<int32_t> tokens_;
  std::vector<int64_t> begin_{0};  // of each sample in tokens_, and the end of the last
  std::vector<int64_t> first_target_;
  int64_t longest_ = 0;
};

// What a run that cuts samples at `max_seq_length` makes of a dataset: said once before it starts.
struct DatasetCounts {
  int64_t inputs = 0;      // tokens in one epoch, without padding
  int64_t targets = 0;     // of them, those whose label counts
  int64_t longest = 0;     // inputs of the longest sample
  int64_t truncated = 0;   // samples that lose tokens
  int64_t all_masked = 0;  // samples without a target: they cost time and teach nothing
};
DatasetCounts count(const Dataset& dataset, int64_t max_seq_length);

// Every sample is in exactly one of the two, in its old order.
struct Split {
  Dataset train, validation;
};
// round(fraction * size) samples drawn by `seed` are held out: at least one if fraction > 0, never
// all. Throws Fault::usage for a fraction outside [0, 1), Fault::file when there is no sample to
// spare.
Split split(const Dataset& dataset, double validation_fraction, uint64_t seed);

}  // namespace capstan
