#pragma once

#include <memory>

#include "comm/process_group.h"

namespace capstan {

class MpiMember;
class MpiProcess;

// The ranks that mpirun (or Slurm) started, one process each. A thread of the group's own moves the
// data while the rank computes, and sleeps when there is nothing to move. Tensors are in host
// memory.
class MpiGroup : public ProcessGroup {
 public:
  // Starts MPI: once in a process. Throws Fault::device if MPI does not allow calls from several
  // threads.
  explicit MpiGroup(Duration timeout = std::chrono::seconds(300));

  Communicator communicator() const override;
  void set_timeout(Duration timeout) override;
  bool report(std::string_view why, bool consequence) noexcept override;
  [[noreturn]] void end(int exit_code) noexcept override;

 private:
  std::shared_ptr<MpiProcess> process_;
  std::shared_ptr<MpiMember> member_;
};

}  // namespace capstan
