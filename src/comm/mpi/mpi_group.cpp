#include "comm/mpi/mpi_group.h"

#include <mpi.h>

#include <cstdlib>

#include "comm/mpi/mpi_member.h"

namespace capstan {
namespace {

// Starts MPI.
Ranks started() {
  int before = 0, provided = 0;
  MPI_Initialized(&before);
  require(before == 0, Fault::bug, "MPI was started twice");
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  require(provided >= MPI_THREAD_SERIALIZED, Fault::device,
          "MPI: this library does not allow calls from several threads; use one that was built "
          "with thread support");
  Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  return ranks;
}

}  // namespace

MpiGroup::MpiGroup(Duration timeout) : member_(std::make_shared<MpiMember>(started(), timeout)) {}

void MpiGroup::set_timeout(Duration timeout) {
  member_->set_timeout(timeout);
}

bool MpiGroup::report(std::string_view why, bool consequence) noexcept {
  return member_->report(why, consequence);
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
