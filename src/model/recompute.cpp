#include "model/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace capstan {
namespace {

constexpr std::string_view kNames[] = {"none", "selective", "block"};

// The policy of the blocks that `policy` leaves out.
Recompute before(Recompute policy) {
  return policy == Recompute::block ? Recompute::selective : Recompute::none;
}

// The whole of `text` as a number from 1 to kAll; 0 where it is none.
int count_in(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return 0;
  return static_cast<int>(std::clamp<int64_t>(n, 0, Recomputation::kAll));
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
  const std::string_view policy = kNames[static_cast<size_t>(r.policy)];
  const bool all = r.policy == Recompute::none || r.blocks == Recomputation::kAll;
  return all ? std::string(policy) : fmt::format("{}:{}", policy, r.blocks);
}

Recomputation parse_recomputation(std::string_view name) {
  const size_t colon = name.find(':');
  const auto known = std::find(std::begin(kNames), std::end(kNames), name.substr(0, colon));
  const auto policy = static_cast<Recompute>(known - std::begin(kNames));
  if (known != std::end(kNames)) {
    if (colon == std::string_view::npos) return policy;
    const int n = count_in(name.substr(colon + 1));
    if (policy != Recompute::none && n > 0) return {policy, n};
  }
  fail(Fault::usage,
       "activations: expected none, selective, block, or as selective:8 or block:8 how many of the "
       "first blocks, found '{}'",
       name);
}

}  // namespace capstan
