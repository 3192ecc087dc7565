#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "comm/communicator.h"

namespace capstan {

// The ranks of a run that are processes, as a launcher such as mpirun starts them.
class ProcessGroup {
 public:
  using Duration = std::chrono::steady_clock::duration;

  ProcessGroup() = default;
  // Ends with all ranks together. After an error it ends them all.
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual Communicator communicator() const = 0;
  // A rank that waits longer than this for another one gives up.
  virtual void set_timeout(Duration timeout) = 0;

  // For a rank that fails: tells the others why. Returns whether it should tell the user, too; not
  // if another rank does: a lower one, or the one whose failure this is a consequence of.
  virtual bool report(std::string_view why, bool consequence) noexcept = 0;
  // Ends the processes of all ranks, now.
  [[noreturn]] virtual void end(int exit_code) noexcept = 0;
};

// The ranks that a launcher started, of which this process is one; none if it was started alone.
std::optional<Ranks> launched_ranks();

// Joins them. Throws Fault::device if the program's MPI library is missing or does not load.
std::unique_ptr<ProcessGroup> join_launched_ranks(ProcessGroup::Duration timeout);

}  // namespace capstan
