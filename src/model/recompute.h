#pragma once

#include <climits>
#include <string>
#include <string_view>

#include "recipe/activations.h"

namespace capstan {

// What the backward pass recomputes: `policy` for the first `blocks` blocks, and the next weaker
// policy for the others. This gives a ladder from `none` over all of `selective` to all of `block`.
// Each rung takes more time than the one below, and usually less memory. Exceptions: if something
// else decides the peak, and the last rung, since the backward pass recomputes the last block
// immediately. It starts with the first blocks because the backward pass reaches them last:
// recomputed activations then reuse memory that it has freed.
struct Recomputation {
  static constexpr int kAll = INT_MAX;

  Recompute policy = Recompute::none;
  int blocks = kAll;

  Recomputation() = default;
  // For all blocks, or for the first `blocks`, at least one.
  Recomputation(Recompute p, int n = kAll) : policy(p), blocks(n) {}

  Recompute of(int block) const;  // blocks count from 0

  // Rung for a model of `layers` layers: 0 is `none`, layers is all of `selective`, 2 · layers is
  // all of `block`.
  int rung(int layers) const;
  static Recomputation at_rung(int rung, int layers);

  bool operator==(const Recomputation&) const = default;
};

// "none", "selective", "block", "block:9" for the first nine blocks.
std::string name_of(const Recomputation& r);
// Converts Activations; the caller must have resolved "auto".
Recomputation recomputation_of(const Activations& activations);
// Parses a text. Throws Fault::usage with the allowed forms.
Recomputation parse_recomputation(std::string_view name);

}  // namespace capstan
