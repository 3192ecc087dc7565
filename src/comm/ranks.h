#pragma once

namespace capstan {

// One rank of a group.
struct Ranks {
  int rank = 0, size = 1;
};

}  // namespace capstan
