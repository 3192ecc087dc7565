#pragma once

#include "comm/ranks.h"
#include "data/batch/batch.h"
#include "model/batch.h"
#include "model/config.h"
#include "tensor/copy_ahead.h"

namespace capstan {

// The largest possible micro-batch, for which memory is planned.
struct BatchLimits {
  int64_t tokens = 0;  // padding included
  int64_t documents = 0;
  int64_t longest = 0;  // tokens of one document

  void include(const BatchLimits& other);
  // With the padding of batches whose tokens several ranks share (BatchOptions::shares).
  BatchLimits for_shares(int64_t shares) const;
};

// The largest micro-batch that `micro_batch` samples of the dataset can make.
BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options);

// Device buffers for one micro-batch. Of ranks that share each sequence, each has an equal number
// of consecutive tokens as the batch's, and the mask of all of them.
//
// With pinned host memory, the next one is copied while the GPU
// works (CopyAhead). The offsets of the arrays depend only on the numbers of tokens and documents.
class DeviceBatch {
 public:
  // Which arrays a batch has: the tokens' ordinals are for dropout alone.
  enum class Arrays : uint8_t { without_ordinals, with_ordinals };

  // Allocates Category::data from the queue's arenas, outside of a phase.
  DeviceBatch(Queue& q, const BatchLimits& limits, const ModelConfig& model,
              Arrays arrays = Arrays::without_ordinals, const Ranks& sharing = {});

  // Copies the host batch to the device; the result is valid until the next upload. The host batch
  // may be reused on return.
  Batch upload(Queue& q, const HostBatch& host);

  // If it copies ahead: starts copying the batch of the next upload() and keeps the current one in
  // place until then. The host batch may be reused on return. An upload() of any other batch is
  // also correct. Fault::bug if it does not copy ahead.
  bool copies_ahead() const { return ahead_.active(); }
  void send(const HostBatch& host);

  // A batch of the largest size with arbitrary contents: for rehearsals.
  Batch largest() const;

 private:
  Batch view(int64_t tokens, int64_t documents, int64_t longest) const;

  BatchLimits limits_;
  Ranks sharing_;
  int64_t window_;
  Arrays arrays_;
  Buffer room_;
  CopyAhead ahead_;
  int64_t sent_ = 0;  // serial of the batch that was sent but not yet uploaded; 0: none
};

}  // namespace capstan
