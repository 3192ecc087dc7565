#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset/dataset.h"

namespace capstan {

// How samples become batches.
struct BatchOptions {
  int64_t max_seq_length = 0;  // longer samples are truncated, counted as in the dataset (Cut)
  int64_t vocab = 0;           // the model's: ids must be below
  bool packed = true;          // concatenated; else each padded to the longest of the batch
  int64_t multiple =
      1;  // padded lengths are rounded up to a multiple of it, but not past max_seq_length
  // Ranks that share the tokens of a batch: a last document of padding makes them a multiple of it.
  int64_t shares = 1;
};

// A micro-batch in host memory, in the layout of model/batch.h. The constructor allocates all
// memory; filling it allocates nothing and throws Fault::bug if the samples do not fit.
struct HostBatch {
  HostBatch(int64_t max_tokens, int64_t max_documents);
  void clear();

  std::vector<int32_t> ids, labels, positions;  // one per token; padding has id 0, label kIgnore
  std::vector<int32_t> ordinals;  // of the tokens in their step, without padding; padding's repeat
  std::vector<int32_t> starts;    // starts of documents, and the end: documents() + 1 values

  int64_t targets = 0;    // labels that are not kIgnore
  int64_t longest = 0;    // tokens of the longest document, padding included
  int64_t padding = 0;    // of the tokens
  int64_t truncated = 0;  // truncated documents
  int64_t serial = 0;     // set by clear(): unique for every filling in this process

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }  // padding included
  int64_t documents() const { return static_cast<int64_t>(starts.size()) - 1; }
};

// Replaces the contents of `batch` by these samples, one document each, in this order. The inputs
// of a document are its sample's tokens 0 … n-2, its labels tokens 1 … n-1, or kIgnore outside of
// the target spans; both are truncated as in dataset.inputs_of. `first_ordinal` is the number of
// the step's tokens before these. Throws Fault::file, naming the sample, for an id outside the
// vocabulary.
void pack(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
          const BatchOptions& options, int64_t first_ordinal = 0);
// The same documents, each right-padded to the length of the longest. Positions continue through
// the padding; causal attention hides it from all real tokens.
void pad(HostBatch& batch, const Dataset& dataset, std::span<const int64_t> samples,
         const BatchOptions& options, int64_t first_ordinal = 0);

// The number of tokens with that document.
inline int64_t with_shares(int64_t tokens, int64_t shares) {
  return (tokens + shares - 1) / shares * shares;
}

// Tokens of the largest batch that any `samples` different samples can make, packed or padded
// according to the options. Memory is planned for this.
int64_t largest_batch(const Dataset& dataset, int64_t samples, const BatchOptions& options);

}  // namespace capstan
