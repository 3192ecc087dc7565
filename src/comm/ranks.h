#pragma once

namespace capstan {

// One rank of a group.
struct Ranks {
  int rank = 0, size = 1;
};

// Some ranks of a group: first, first + stride, …
struct Members {
  int first = 0, stride = 1, count = 1;
  int at(int i) const { return first + i * stride; }
};

}  // namespace capstan
