#include "comm/process_group.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "comm/own_library.h"

namespace capstan {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<Ranks> launched_ranks() {
  // Open MPI's names, then those of MPICH and of Slurm's PMI.
  constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                       {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : kNames)
    if (const auto r = number_in(rank), s = number_in(size); r && s && *s > 1 && *r < *s)
      return Ranks{*r, *s};
  return std::nullopt;
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
