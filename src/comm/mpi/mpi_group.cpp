#include "comm/mpi/mpi_group.h"

#include <mpi.h>

#include <cstdlib>

#include "comm/mpi/mpi_member.h"

namespace capstan {

MpiGroup::MpiGroup(Duration timeout)
    : process_(std::make_shared<MpiProcess>(timeout)),
      member_(std::make_shared<MpiMember>(process_)) {}

void MpiGroup::set_timeout(Duration timeout) {
  process_->set_timeout(timeout);
}

bool MpiGroup::report(std::string_view why, bool consequence) noexcept {
  return process_->report(why, consequence);
}

void MpiGroup::end(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // it does not return
}

Communicator MpiGroup::communicator() const {
  if (member_->size() == 1) return {};
  return Communicator(member_);
}

}  // namespace capstan

// What the program looks up when it loads this library.
extern "C" capstan::ProcessGroup* capstan_join_mpi(double timeout) {
  using Duration = capstan::ProcessGroup::Duration;
  return new capstan::MpiGroup(
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout)));
}
