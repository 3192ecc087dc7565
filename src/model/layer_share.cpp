#include "model/layer_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

// Rows of the vocabulary begin at multiples of it: products are faster.
constexpr int64_t kVocabGrain = 8;

// The largest power of two up to `grain` that leaves every rank something.
int64_t fitting_grain(int64_t n, int64_t ranks, int64_t grain) {
  while (grain > 1 && (n + grain - 1) / grain < ranks) grain /= 2;
  return grain;
}

Span share(int64_t n, const Ranks& ranks, int64_t grain) {
  return even_share(n, ranks.rank, ranks.size, fitting_grain(n, ranks.size, grain));
}

}  // namespace

Span even_share(int64_t n, int64_t index, int64_t of, int64_t grain) {
  const int64_t blocks = (n + grain - 1) / grain, each = blocks / of, more = blocks % of;
  const auto begin = [&](int64_t i) { return std::min(n, (i * each + std::min(i, more)) * grain); };
  return {begin(index), begin(index + 1) - begin(index)};
}

HeadShare share_heads(int64_t heads, int64_t kv_heads, const Ranks& ranks) {
  const int64_t group = heads / kv_heads;
  if (ranks.size <= kv_heads) {
    const Span kv = even_share(kv_heads, ranks.rank, ranks.size);
    return {{kv.first * group, kv.count * group}, kv, {ranks.rank, 1}};
  }
  for (int64_t head = 0; head < kv_heads; ++head) {
    const Span sharing = even_share(ranks.size, head, kv_heads);
    if (ranks.rank >= sharing.end()) continue;
    const Span of_group = even_share(group, ranks.rank - sharing.first, sharing.count);
    return {{head * group + of_group.first, of_group.count}, {head, 1}, sharing};
  }
  fail(Fault::bug, "rank {} of {} has no head", ranks.rank, ranks.size);
}

int64_t most_layer_shares(const ModelConfig& c) {
  return std::min({c.heads, c.intermediate, c.vocab});
}

LayerShare layer_share(const ModelConfig& c, const LayerSplit& split) {
  const int64_t size = split.ranks.size;
  // Of uneven shares of the key heads, the largest number of ranks that share a head.
  const int64_t sharing = size <= c.kv_heads ? 1 : (size + c.kv_heads - 1) / c.kv_heads;
  require(size <= most_layer_shares(c) && sharing <= c.heads / c.kv_heads, Fault::usage,
          "tensor_parallel: {} ranks cannot share a layer of {} query heads for {} key heads and "
          "{} inner channels; use fewer",
          size, c.heads, c.kv_heads, c.intermediate);
  return {split, share_heads(c.heads, c.kv_heads, split.ranks),
          share(c.intermediate, split.ranks, split.grain),
          share(c.vocab, split.ranks, kVocabGrain)};
}

void require_shares(const ModelConfig& c, int tensor, int context) {
  for (int rank = 0; rank < tensor; ++rank) {
    const LayerShare share = layer_share(c, {{rank, tensor}});
    const int64_t heads = share.heads(), kv_heads = share.kv_heads();
    require(context <= kv_heads || (context + kv_heads - 1) / kv_heads <= heads / kv_heads,
            Fault::usage, "context_parallel: {} ranks cannot share {} for {}{}; use fewer", context,
            count(heads, "query head"), count(kv_heads, "key head"),
            tensor == 1 ? "" : fmt::format(", which tensor_parallel {} leaves on a rank", tensor));
  }
}

int64_t largest_vocab_share(const ModelConfig& c, int ranks) {
  return share(c.vocab, {0, ranks}, kVocabGrain).count;
}

}  // namespace capstan
