#include "model/recompute.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace capstan {
namespace {

// The policy of the blocks beyond the first `blocks`.
Recompute before(Recompute policy) {
  return policy == Recompute::block ? Recompute::selective : Recompute::none;
}

}  // namespace

Recompute Recomputation::of(int block) const {
  return block < blocks ? policy : before(policy);
}

int Recomputation::rung(int layers) const {
  if (policy == Recompute::none) return 0;
  return (policy == Recompute::block ? layers : 0) + std::min(blocks, layers);
}

Recomputation Recomputation::at_rung(int rung, int layers) {
  if (rung == 0) return Recompute::none;
  const Recompute policy = rung <= layers ? Recompute::selective : Recompute::block;
  const int n = rung <= layers ? rung : rung - layers;
  return n < layers ? Recomputation(policy, n) : Recomputation(policy);
}

std::string name_of(const Recomputation& r) {
  const std::string_view policy = name_of(r.policy);
  const bool all = r.policy == Recompute::none || r.blocks == Recomputation::kAll;
  return all ? std::string(policy) : fmt::format("{}:{}", policy, r.blocks);
}

Recomputation recomputation_of(const Activations& activations) {
  require(!activations.automatic, Fault::bug, "activations: auto is not resolved");
  const int64_t blocks = activations.blocks.value_or(Recomputation::kAll);
  return {activations.policy, static_cast<int>(std::min<int64_t>(blocks, Recomputation::kAll))};
}

Recomputation parse_recomputation(std::string_view name) {
  const auto activations = Activations::parse(name);
  require(activations && !activations->automatic, Fault::usage,
          "activations: expected none, selective, block, or with a number of first blocks "
          "selective:8 or block:8, found '{}'",
          name);
  return recomputation_of(*activations);
}

}  // namespace capstan
