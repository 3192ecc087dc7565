#pragma once

#include <algorithm>

#include "comm/ranks.h"
#include "data/batch/batch.h"

namespace capstan {

// Number of targets among these samples. The loss of a step is the sum of its losses divided by
// this number for the whole global batch, however it is cut; it may be 0 if every label is masked.
int64_t count_targets(const Dataset& dataset, std::span<const int64_t> samples,
                      int64_t max_seq_length);

// Cuts the samples of a step into micro-batches of `micro_batch` samples; the last may have fewer.
// Allocates once, for the largest micro-batch of the dataset.
//
// Among several ranks, micro-batch j belongs to rank j modulo their number. All ranks get the same
// number of micro-batches; the last one of some may be empty (no tokens).
//
//   micro.start(sampler.ids(step));
//   const float scale = 1.0f / micro.targets();
//   while (const HostBatch* batch = micro.next()) …
class MicroBatches {
 public:
  // The dataset must outlive this and not change.
  MicroBatches(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options,
               const Ranks& ranks = {});

  // The samples must stay valid until the last next().
  void start(std::span<const int64_t> samples);
  int64_t count() const;                        // micro-batches of this rank in this step
  int64_t targets() const { return targets_; }  // of all micro-batches of all ranks together

  // The next micro-batch, in one buffer that the following next() or peek() refills; null after the
  // last.
  const HostBatch* next();
  // Prepares and returns the micro-batch of the following next(), so that its copy to the device
  // can start early. Null after the last, and if it cannot be made: next() then throws the reason.
  const HostBatch* peek();
  // The samples of the micro-batch that next() returned last (regardless of peek), and of the whole
  // step: for error messages.
  std::span<const int64_t> samples() const { return current_; }
  std::span<const int64_t> step_samples() const { return all_; }

  const Dataset& dataset() const { return dataset_; }
  int64_t max_tokens() const { return max_tokens_; }  // of any micro-batch, padding included
  int64_t max_documents() const { return std::min(micro_batch_, dataset_.size()); }

 private:
  // Samples of the step's micro-batch with this number; none beyond the last.
  std::span<const int64_t> samples_of(int64_t number) const;
  std::span<const int64_t> upcoming() const {
    return samples_of(returned_ * ranks_.size + ranks_.rank);
  }
  int64_t tokens_of(std::span<const int64_t> samples) const;  // without padding
  void make_upcoming();

  const Dataset& dataset_;
  int64_t micro_batch_;
  BatchOptions options_;
  int64_t max_tokens_;
  HostBatch batch_;
  Ranks ranks_;
  std::span<const int64_t> all_, current_;
  int64_t returned_ = 0;  // micro-batches, by next()
  int64_t passed_ = 0;    // tokens of the step before the next micro-batch, without padding
  bool made_ = false;     // batch_ is the next one already
  int64_t targets_ = 0;
};

}  // namespace capstan
