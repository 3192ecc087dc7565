#pragma once

#include <algorithm>

#include "data/batch/batch.h"

namespace capstan {

// Labels that count among these samples. The loss of a step is its sum divided by this number for
// the whole global batch, however that is cut; it may be 0 when every label is masked.
int64_t count_targets(const Dataset& dataset, std::span<const int64_t> samples,
                      int64_t max_seq_length);

// Cuts the samples of a step into micro-batches of `micro_batch` samples, of which the last may
// have fewer. Memory is taken once, for the largest micro-batch that the dataset can make.
//
//   micro.start(sampler.ids(step));
//   const float scale = 1.0f / micro.targets();
//   while (const HostBatch* batch = micro.next()) …
class MicroBatches {
 public:
  // The dataset must outlive this, and not change.
  MicroBatches(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options);

  // The samples must stay where they are until the last next().
  void start(std::span<const int64_t> samples);
  int64_t count() const;                        // micro-batches of this step
  int64_t targets() const { return targets_; }  // of all of them together

  // The next micro-batch, in one buffer that the following next() or peek() refills; null after the
  // last.
  const HostBatch* next();
  // What next() will return, made already, so that it can be on its way to the device before its
  // turn. Null after the last, and where it cannot be made: next() says why.
  const HostBatch* peek();
  // The samples of the micro-batch that next() returned last, whatever was looked at since, and of
  // all of the step: to be named when something is wrong.
  std::span<const int64_t> samples() const { return current_; }
  std::span<const int64_t> step_samples() const { return all_; }

  const Dataset& dataset() const { return dataset_; }
  int64_t max_tokens() const { return max_tokens_; }  // of any micro-batch, padding included
  int64_t max_documents() const { return std::min(micro_batch_, dataset_.size()); }

 private:
  std::span<const int64_t> upcoming() const;
  void make_upcoming();

  const Dataset& dataset_;
  int64_t micro_batch_;
  BatchOptions options_;
  int64_t max_tokens_;
  HostBatch batch_;
  std::span<const int64_t> all_, rest_, current_;
  bool made_ = false;  // batch_ is what comes next
  int64_t targets_ = 0;
};

}  // namespace capstan
