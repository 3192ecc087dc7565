#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// What becomes of the matches that a text is split at: "Isolated" makes a part of each, "Removed"
// drops them, "MergedWithPrevious" and "MergedWithNext" join them to the part beside them, and
// "Contiguous" makes one part of neighbours.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const Spec& spec, const char* key);

// The parts of [begin, end), given the matches in it from left to right. `invert` takes what lies
// between matches for the matches.
std::vector<unicode::Range> split(size_t begin, size_t end,
                                  const std::vector<unicode::Range>& matches, Behavior behavior,
                                  bool invert);

}  // namespace capstan
