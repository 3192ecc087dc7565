#pragma once

#include "data/batch/batch.h"
#include "model/batch.h"
#include "model/config.h"
#include "tensor/copy_ahead.h"

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

// A device's room for one micro-batch. Beside a GPU with pinned host memory the next one is copied
// while the GPU works (CopyAhead). The places of the arrays follow from the numbers of tokens and
// documents, and from nothing else.
class DeviceBatch {
 public:
  // Takes Category::data from the queue's arenas, outside of a phase.
  DeviceBatch(Queue& q, const BatchLimits& limits, const ModelConfig& model);

  // The host's batch on the device; valid until the next upload. Has read the host's on return.
  Batch upload(Queue& q, const HostBatch& host);

  // Where it copies ahead: begins to copy the batch that the next upload() will be asked for, and
  // leaves the one before in its place until then. Has read the host's on return. An upload() of
  // any other is right as well. Fault::bug where it does not copy ahead.
  bool copies_ahead() const { return ahead_.active(); }
  void send(const HostBatch& host);

  // The largest batch, with whatever is there: for rehearsals.
  Batch largest() const;

 private:
  Batch view(int64_t tokens, int64_t documents, int64_t longest) const;

  BatchLimits limits_;
  int64_t window_;
  Buffer room_;
  CopyAhead ahead_;
  int64_t sent_ = 0;  // serial of the batch that was sent and not yet uploaded; 0: none
};

}  // namespace capstan
