#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace capstan {

// Ranks that are threads of this process, each with its own queue and arena, on the CPU, on one GPU
// that they share, or on GPUs that can read each other's memory. They read each other's operands
// where they lie, so collectives need no room of their own. On a GPU a collective is work of the
// comm lane: hosts wait for each other only until all have put their part there.
class ThreadGroup {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // A rank that waits longer than `timeout` for another one ends the group.
  ThreadGroup(int size, std::string name, Duration timeout = std::chrono::seconds(300));
  ~ThreadGroup();

  // The group as seen by a rank; once for each.
  Communicator of(int rank);

 private:
  class Shared;
  class Member;
  std::shared_ptr<Shared> shared_;
};

// Calls body(group) on `size` threads, one for each rank, which share the cores that this thread
// may use. If one throws, its group ends: the others get Fault::peer at their next collective. Then
// throws the first error that is not such a consequence.
void run_as_threads(int size, const std::function<void(Communicator)>& body,
                    ThreadGroup::Duration timeout = std::chrono::seconds(300));

}  // namespace capstan
