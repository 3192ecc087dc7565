#include "comm/process_group.h"

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/own_library.h"

namespace capstan {

std::optional<Ranks> launched_ranks() {
  return launched_ranks(environment());
}

std::unique_ptr<ProcessGroup> join_launched_ranks(ProcessGroup::Duration timeout) {
  using Join = ProcessGroup* (*)(double);
  const auto join = reinterpret_cast<Join>(function_of_library("mpi", "capstan_join_mpi"));
  require(join != nullptr, Fault::device,
          "this program was started by mpirun, but was built without MPI; install Open MPI's "
          "development files and build again, or start one process with --devices");
  std::unique_ptr<ProcessGroup> group(join(std::chrono::duration<double>(timeout).count()));
  const Ranks told = launched_ranks().value_or(Ranks()), found = group->communicator().ranks();
  require(told.rank == found.rank && told.size == found.size, Fault::device,
          "the launcher started rank {} of {}, but MPI says {} of {}: start the program with the "
          "mpirun of the Open MPI that it was built with",
          told.rank, told.size, found.rank, found.size);
  return group;
}

}  // namespace capstan
