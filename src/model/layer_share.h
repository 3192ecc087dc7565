#pragma once

#include <cstdint>

#include "comm/ranks.h"
#include "model/config.h"

namespace capstan {

// Consecutive things of a larger number: rows, heads, ranks.
struct Span {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  bool operator==(const Span&) const = default;
};

// One of `of` shares of n things, about equal, which begins at a multiple of `grain`.
Span even_share(int64_t n, int64_t index, int64_t of, int64_t grain = 1);

// Query heads, and the key heads that they attend to. As many query heads for each key head.
struct HeadShare {
  Span heads, kv_heads;
  Span copies;  // the ranks that have these key heads
};
// Of one rank. With more ranks than key heads, several ranks have the same key head and share its
// query heads.
HeadShare share_heads(int64_t heads, int64_t kv_heads, const Ranks& ranks);

// How each layer is divided among ranks (tensor parallelism), as one of them.
struct LayerSplit {
  Ranks ranks;
  int64_t grain = 64;  // inner channels of the feed-forward part are split at multiples of it
};

// What one of these ranks has of each layer.
struct LayerShare {
  LayerSplit split;
  HeadShare attention;
  Span intermediate, vocab;

  const Ranks& ranks() const { return split.ranks; }
  int64_t heads() const { return attention.heads.count; }
  int64_t kv_heads() const { return attention.kv_heads.count; }
};

// The most ranks that can share the model's layers: each has a query head, and no two key heads
// that it has are incomplete.
int64_t most_layer_shares(const ModelConfig& config);
// Throws Fault::usage for more ranks than that.
LayerShare layer_share(const ModelConfig& config, const LayerSplit& split);

// Throws Fault::usage if so many ranks cannot share each layer, or so many its heads for each
// sequence besides.
void require_shares(const ModelConfig& config, int tensor, int context);

// The most rows of the vocabulary that a rank has.
int64_t largest_vocab_share(const ModelConfig& config, int ranks);

}  // namespace capstan
