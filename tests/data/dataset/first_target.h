#pragma once

#include "data/dataset/dataset.h"

namespace capstan {

// The first target of a sample, or the number of its tokens if it has none.
inline int64_t first_target(const Dataset& data, int64_t sample) {
  const auto spans = data.target_spans_of(sample);
  return spans.empty() ? std::ssize(data.tokens_of(sample)) : spans.front().begin;
}

}  // namespace capstan
