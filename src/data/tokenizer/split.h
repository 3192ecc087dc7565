#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// What happens to the matches that a text is split at: "Isolated" makes each a part, "Removed"
// drops them, "MergedWithPrevious" and "MergedWithNext" join them to the neighbouring part, and
// "Contiguous" joins adjacent ones.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const Spec& spec, const char* key);

// The parts of [begin, end), given its matches from left to right. `invert` swaps matches and the
// text between them.
std::vector<unicode::Range> split(size_t begin, size_t end,
                                  const std::vector<unicode::Range>& matches, Behavior behavior,
                                  bool invert);

}  // namespace capstan
