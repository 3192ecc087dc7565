#pragma once

#include <climits>
#include <string>
#include <string_view>

#include "recipe/activations.h"

namespace capstan {

// What the backward pass computes again of a model: `policy` for its first `blocks` blocks, and the
// policy before it for the others. So there is a ladder from `none` over all of `selective` to all
// of `block`. Each rung takes more time than the one below, and as a rule less memory: not where
// something else decides, and not the last, since what the backward pass makes again for the last
// block it makes at once. It begins with the first blocks because the backward pass comes to them
// last: what it makes again finds the room of what it has used up.
struct Recomputation {
  static constexpr int kAll = INT_MAX;

  Recompute policy = Recompute::none;
  int blocks = kAll;

  Recomputation() = default;
  // Of all blocks, or the first so many, at least one.
  Recomputation(Recompute p, int n = kAll) : policy(p), blocks(n) {}

  Recompute of(int block) const;  // blocks count from 0

  // Of a model of so many layers: 0 is `none`, layers all of `selective`, 2 · layers all of
  // `block`.
  int rung(int layers) const;
  static Recomputation at_rung(int rung, int layers);

  bool operator==(const Recomputation&) const = default;
};

// "none", "selective", "block", "block:9" for the first nine blocks.
std::string name_of(const Recomputation& r);
// Of all that Activations can say but "auto", which the caller must have settled.
Recomputation recomputation_of(const Activations& activations);
// The same of a text. Throws Fault::usage, saying what can be written.
Recomputation parse_recomputation(std::string_view name);

}  // namespace capstan
