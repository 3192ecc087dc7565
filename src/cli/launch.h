#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/process_group.h"
#include "recipe/recipe.h"

// How the ranks of a run are started: as threads of this process, or by mpirun as processes.
namespace capstan::cli {

// Throws Fault::usage if this process is one of several copies of `command` that a launcher started
// without connecting them, with the line that connects them.
void require_no_copy(std::string_view command);
// Warns a process that trains alone where there is room for several.
void warn_of_idle_tasks(std::string_view command);

// How many ranks a recipe asks for on each machine.
int64_t ranks_per_machine(const Recipe& recipe);

// The ranks of this machine.
struct Placement {
  int ranks = 1;
  std::vector<int> gpus = {};  // of each; none: they share the CPU
};
// Where a recipe's ranks run, when this process is to start them. Throws Fault::usage for several
// machines, Fault::device for GPUs that are not there.
Placement place_ranks(const Recipe& recipe);

// Calls body(group) on a thread for each rank, and returns what rank 0 returned; on this thread, if
// there is one rank. Throws the first error that is not the consequence of another.
int run_in_threads(const Placement& placement, const Recipe& recipe,
                   const std::function<int(Communicator)>& body);

// This process, as one of those that mpirun started.
class LaunchedRank {
 public:
  explicit LaunchedRank(ProcessGroup& processes);

  Communicator group() const { return group_; }
  // Takes the timeout, this rank's share of the cores and its GPU, if it trains on one: then
  // group() becomes one of NCCL. Throws Fault::usage unless the recipe asks for as many ranks as
  // there are.
  void start(const Recipe& recipe);
  // Calls `body` on rank 0, and then on all others.
  void in_turn(const std::function<void()>& body);
  // Waits until all ranks have called it.
  void meet();
  // Ends the processes of all ranks, after one of them has told the user why. To be called while
  // the memory exists that collectives use: messages may be on their way to it.
  [[noreturn]] void fail_all(std::exception_ptr why) noexcept;

 private:
  ProcessGroup& processes_;
  Communicator group_;
  std::unique_ptr<HostChannel> talk_;
};

// Calls body(rank) and returns its result, with all ranks together. If it throws, fail_all(). If
// MPI does not start or end within `timeout` seconds, the process ends with the code of
// Fault::peer.
int run_as_launched(double timeout, const std::function<int(LaunchedRank&)>& body);

}  // namespace capstan::cli
