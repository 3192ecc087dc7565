#include "data/tokenizer/split.h"

#include <algorithm>

#include "base/json_text.h"

namespace capstan {
namespace {

using unicode::Range;

struct Part {
  Range range;
  bool is_match;
};

// The matches and the parts between them.
std::vector<Part> all_parts(size_t begin, size_t end, const std::vector<Range>& matches,
                            bool invert) {
  std::vector<Part> parts;
  size_t done = begin;
  for (const Range& m : matches) {
    if (m.begin > done) parts.push_back({{done, m.begin}, invert});
    parts.push_back({m, !invert});
    done = m.end;
  }
  if (done < end) parts.push_back({{done, end}, invert});
  return parts;
}

}  // namespace

Behavior behavior_of(const Spec& spec, const char* key) {
  const std::string name = spec.text(key);
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  spec.refuse(
      "{}: unknown value {}; the known ones are Isolated, Removed, MergedWithPrevious, "
      "MergedWithNext, Contiguous",
      key, in_quotes(name));
}

std::vector<Range> split(size_t begin, size_t end, const std::vector<Range>& matches,
                         Behavior behavior, bool invert) {
  std::vector<Part> parts = all_parts(begin, end, matches, invert);
  std::vector<Range> result;
  bool before = false;  // whether the last part was a match
  if (behavior == Behavior::merged_with_next) {
    for (auto p = parts.rbegin(); p != parts.rend(); ++p) {
      if (p->is_match && !before && !result.empty()) {
        result.back().begin = p->range.begin;
      } else {
        result.push_back(p->range);
      }
      before = p->is_match;
    }
    std::reverse(result.begin(), result.end());
  } else {
    for (const Part& p : parts) {
      const bool joins = behavior == Behavior::merged_with_previous ? p.is_match && !before
                         : behavior == Behavior::contiguous         ? p.is_match == before
                                                                    : false;
      if (joins && !result.empty()) {
        result.back().end = p.range.end;
      } else if (behavior != Behavior::removed || !p.is_match) {
        result.push_back(p.range);
      }
      before = p.is_match;
    }
  }
  std::erase_if(result, [](const Range& r) { return r.begin == r.end; });
  return result;
}

}  // namespace capstan
