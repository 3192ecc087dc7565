#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace capstan {

// The ranks that mpirun (or Slurm) started, one process each. A thread of the group's own moves the
// data while the rank computes, and sleeps when there is nothing to move. Tensors are in host
// memory.
class MpiGroup {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // Starts MPI: once in a process. A rank that waits longer than `timeout` for another one gives
  // up. Throws Fault::device if MPI does not allow calls from that thread.
  explicit MpiGroup(Duration timeout = std::chrono::seconds(300));
  // Ends MPI, with all ranks together. After an error it aborts them instead.
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  Communicator communicator() const;

 private:
  class Member;
  std::shared_ptr<Member> member_;
};

}  // namespace capstan
