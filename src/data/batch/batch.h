#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset/dataset.h"

namespace capstan {

// How samples become batches.
struct BatchOptions {
  int64_t max_seq_length = 0;  // what is longer is cut, as the dataset counts (Cut)
  int64_t vocab = 0;           // of the model: ids must be below
  bool packed = true;          // one after the other; else each padded to the longest of the batch
  int64_t multiple = 1;        // padded lengths are rounded up to it, but not past max_seq_length
};

// A micro-batch in host memory, in the form of model/batch.h. All memory is taken by the
// constructor; filling it allocates nothing and throws Fault::bug where it does not fit.
struct HostBatch {
  HostBatch(int64_t max_tokens, int64_t max_documents);
  void clear();

  std::vector<int32_t> ids, labels, positions;  // one per token; padding has id 0, label kIgnore
  std::vector<int32_t> starts;                  // of documents, and the end: documents() + 1 values

  int64_t targets = 0;    // labels that are not kIgnore
  int64_t longest = 0;    // tokens of the longest document, padding included
  int64_t padding = 0;    // of the tokens
  int64_t truncated = 0;  // documents that lost tokens
  int64_t serial = 0;     // by clear(): another for every filling in this process

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }  // padding included
  int64_t documents() const { return static_cast<int64_t>(starts.size()) - 1; }
};

// Replaces what is in `batch` by these samples, one document each, in this order. A document's
// inputs are its sample's tokens 0 … n-2, its labels tokens 1 … n-1, or kIgnore outside of the
// target spans; both are cut as dataset.inputs_of says. Throws Fault::file, naming the sample, for
// an id that is not below the vocabulary.
void pack(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
          const BatchOptions& options);
// The same documents, each right-padded to the length of the longest. Positions go on through the
// padding, which causal attention keeps out of sight of everything that counts.
void pad(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
         const BatchOptions& options);

// Tokens of the largest batch that any `samples` different samples can make, packed or padded as
// the options say: what memory is planned for.
int64_t largest_batch(const Dataset& dataset, int64_t samples, const BatchOptions& options);

}  // namespace capstan
