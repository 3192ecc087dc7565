#pragma once

#include <functional>
#include <string>
#include <vector>

namespace capstan {

// What a rank that waits too long knows of another one.
struct RankState {
  enum class Kind {
    unknown,
    silent,  // its process does not answer
    busy,    // it waits for no rank
    waits,   // for the ranks below
  } kind = Kind::unknown;
  std::vector<int> waits_for = {};
};

// Whom a rank waits for in the end.
struct WaitCause {
  std::vector<int> ranks;
  std::string how;  // " (rank 2 waits for rank 3)", if it does not itself wait for them; else empty
};
// `rank` waits for the ranks `direct`, which may wait for others, and so on. The cause is those of
// all these that are silent; if there are none, those that wait for nobody; else those of which
// nothing is known. If each waits for another one, it is `direct`, and `how` shows the ring. Ranks
// in ascending order.
WaitCause cause_of_wait(int rank, const std::vector<int>& direct,
                        const std::function<RankState(int)>& state_of);

}  // namespace capstan
