#include "cli/launch.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/failure.h"
#include "comm/thread_group.h"
#include "machine/name.h"
#include "tensor/accelerator.h"

namespace capstan::cli {
namespace {

ProcessGroup::Duration duration(double seconds) {
  constexpr double kMost = 1e8;  // three years
  return std::chrono::duration_cast<ProcessGroup::Duration>(
      std::chrono::duration<double>(std::min(seconds, kMost)));
}

// What a recipe asks of its ranks, before they start.
void check_ranks(const Recipe& recipe, int64_t ranks) {
  if (recipe.strategy == Strategy::dp) log::info("strategy: dp runs as ddp");
  require(ranks == 1 || device_of(recipe.accelerator) == Device::cpu, Fault::usage,
          "devices: {} ranks requested, but several ranks train on CPUs only today; use "
          "--accelerator cpu, or --devices 1",
          ranks);
}

// This process's machine and the cores that it may use there, as text.
std::string place() {
  cpu_set_t cores;
  std::string text = host_name();
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return text;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &cores)) text += fmt::format(" {}", i);
  return text;
}

}  // namespace

int ranks_of(const Recipe& recipe) {
  require(recipe.num_nodes == 1, Fault::usage,
          "num_nodes: {} requested; start the ranks with mpirun, which knows the machines: mpirun "
          "-n RANKS --host A,B capstan …",
          recipe.num_nodes);
  const int64_t ranks = recipe.devices.automatic ? 1 : recipe.devices.count;
  check_ranks(recipe, ranks);
  if (ranks > num_threads())
    log::warn("devices: {} share {}: each takes longer than alone", count(ranks, "rank"),
              count(num_threads(), "core"));
  return static_cast<int>(ranks);
}

int run_in_threads(int ranks, const Recipe& recipe, const std::function<int(Communicator)>& body) {
  if (ranks == 1) return body({});
  std::atomic<int> code = 0;
  run_as_threads(
      ranks,
      [&](Communicator group) {
        const int own = body(group);
        if (group.rank() == 0) code = own;
      },
      duration(recipe.timeout));
  return code;
}

LaunchedRank::LaunchedRank(ProcessGroup& processes)
    : processes_(processes),
      group_(processes.communicator()),
      talk_(group_.open_channel("start")) {}

void LaunchedRank::start(const Recipe& recipe) {
  processes_.set_timeout(duration(recipe.timeout));
  const int64_t devices = recipe.devices.automatic ? 1 : recipe.devices.count;
  const int64_t ranks = devices * recipe.num_nodes;  // each is small
  require(ranks == 1 || ranks == group_.size(), Fault::usage,
          "devices: {} on each of {} make {} ranks, but mpirun started {}; use mpirun -n {}, or "
          "leave both keys out",
          devices, count(recipe.num_nodes, "machine"), ranks, group_.size(), ranks);
  check_ranks(recipe, group_.size());
  const auto places = talk_->exchange(place());
  const auto sharing =
      std::count(places.begin(), places.end(), places[static_cast<size_t>(group_.rank())]);
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    omp_set_num_threads(std::max(1, num_threads() / static_cast<int>(sharing)));
}

void LaunchedRank::in_turn(const std::function<void()>& body) {
  if (group_.rank() == 0) body();
  talk_->exchange("");
  if (group_.rank() != 0) body();
}

void LaunchedRank::fail_all(std::exception_ptr why) noexcept {
  const Failure failure = failure_of(why);
  if (processes_.report(failure.what, failure.consequence))
    tell(failure,
         group_.rank() == 0 ? "" : fmt::format("rank {} on {}: ", group_.rank(), host_name()));
  std::fflush(nullptr);
  processes_.end(failure.exit_code);
  std::abort();  // not reached
}

int run_as_launched(const std::function<int(LaunchedRank&)>& body) {
  const std::unique_ptr<ProcessGroup> processes = join_launched_ranks(std::chrono::seconds(300));
  const log::Quiet quiet(processes->communicator().rank() != 0);
  LaunchedRank launched(*processes);
  try {
    return body(launched);
  } catch (...) {
    launched.fail_all(std::current_exception());
  }
}

}  // namespace capstan::cli
