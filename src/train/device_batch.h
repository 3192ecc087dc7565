#pragma once

#include "data/batch.h"
#include "model/batch.h"
#include "model/config.h"
#include "tensor/queue.h"

namespace capstan {

// The largest micro-batch that can come: what memory is planned for.
struct BatchLimits {
  int64_t tokens = 0;  // padding included
  int64_t documents = 0;
  int64_t longest = 0;  // tokens of one document

  void include(const BatchLimits& other);
};

// The largest micro-batch that `micro_batch` samples of the dataset can make.
BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options);

// A device's room for one micro-batch.
class DeviceBatch {
 public:
  // Takes Category::data from the queue's arena, outside of a phase.
  DeviceBatch(Queue& q, const BatchLimits& limits, const ModelConfig& model);

  // The host's batch on the device; valid until the next upload.
  Batch upload(Queue& q, const HostBatch& host) const;
  // The largest batch, with whatever is there: for rehearsals.
  Batch largest() const;

 private:
  Batch view(int64_t tokens, int64_t documents, int64_t longest) const;

  BatchLimits limits_;
  int64_t window_;
  Buffer ids_, labels_, positions_, starts_;
};

}  // namespace capstan
