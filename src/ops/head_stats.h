#pragma once

#include "tensor/tensor.h"

namespace capstan {

// What a rank tells the others of one token: of the logits of its own rows.
struct HeadStats {
  double top;     // the largest
  double sum;     // Σ exp(logit - top)
  double target;  // the label's, or 0 if another rank has its row
};
inline constexpr int64_t kHeadStats = sizeof(HeadStats) / sizeof(double);

// The number of f64 for chunks of at most `tokens`.
inline int64_t head_stats_size(int ranks, int64_t tokens) {
  return ranks * tokens * kHeadStats;
}

// The first part of such scratch, for a chunk of n tokens.
struct HeadStatsOfChunk {
  Tensor all, mine;  // [ranks, n, 3] and this rank's [n, 3]
};
inline HeadStatsOfChunk head_stats_of_chunk(const Tensor& scratch, int rank, int ranks, int64_t n) {
  const Tensor all = scratch.rows(0, head_stats_size(ranks, n)).reshape({ranks, n, kHeadStats});
  return {all, all.rows(rank, 1).reshape({n, kHeadStats})};
}

}  // namespace capstan
