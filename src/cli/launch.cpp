#include "cli/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/failure.h"
#include "cli/launcher_output.h"
#include "comm/launch_watch.h"
#include "comm/launcher.h"
#include "comm/nccl_library.h"
#include "comm/thread_group.h"
#include "machine/name.h"
#include "tensor/device.h"

namespace capstan::cli {
namespace {

ProcessGroup::Duration duration(double seconds) {
  constexpr double kMost = 1e8;  // three years
  return std::chrono::duration_cast<ProcessGroup::Duration>(
      std::chrono::duration<double>(std::min(seconds, kMost)));
}

void tell_strategy(const Recipe& recipe) {
  if (recipe.strategy == Strategy::dp) log::info("strategy: dp runs as ddp");
}

// The GPU of each of this machine's ranks; none if they train on the CPU.
std::vector<int> gpus_of(const Recipe& recipe, int64_t ranks) {
  const std::vector<int64_t>& listed = recipe.devices.gpus;
  if (device_of(recipe.accelerator) != Device::cuda) {
    require(listed.empty(), Fault::usage,
            "devices: a list names GPUs, but this run trains on the CPU; give the number of ranks, "
            "which share its cores");
    return {};
  }
  require_present(Device::cuda);
  const int64_t all = gpu_count();
  std::vector<int> gpus;
  require(listed.empty() || std::ssize(listed) == ranks, Fault::usage,
          "devices: {} lists {}, but this machine has {}; list one for each", recipe.devices.text(),
          count(std::ssize(listed), "GPU"), count(ranks, "rank"));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t gpu = listed.empty() ? rank : listed[static_cast<size_t>(rank)];
    require(gpu < all, Fault::device,
            "devices: {} requested, but this machine has {}, numbered from 0 (CUDA_VISIBLE_DEVICES "
            "may hide others); request fewer, or let ranks share one by listing it twice: "
            "--devices [0, 0]",
            listed.empty() ? count(ranks, "GPU") : fmt::format("GPU {}", gpu), count(all, "GPU"));
    gpus.push_back(static_cast<int>(gpu));
  }
  return gpus;
}

// What a recipe says of its machines must be true of those that mpirun found, by rank.
void require_machines(const Recipe& recipe, const std::vector<std::string>& hosts) {
  std::map<std::string, std::vector<size_t>> ranks;
  for (size_t r = 0; r < hosts.size(); ++r) ranks[hosts[r]].push_back(r);
  std::vector<std::string> each;
  bool even = true, neighbours = true;
  for (const auto& [host, of_host] : ranks) {
    each.push_back(fmt::format("{} has {}", host, of_host.size()));
    even = even && of_host.size() == ranks.begin()->second.size();
    neighbours = neighbours && of_host.back() - of_host.front() + 1 == of_host.size();
  }
  const auto machines = std::ssize(ranks);
  const bool given = recipe.num_nodes > 1;
  require(!given || machines == recipe.num_nodes, Fault::usage,
          "num_nodes: {} requested, but mpirun started the ranks on {} ({}); list the machines "
          "(mpirun --host A:{},B:{} …), or leave num_nodes out",
          recipe.num_nodes, count(machines, "machine"), fmt::join(each, ", "),
          ranks_per_machine(recipe), ranks_per_machine(recipe));
  require(!given || recipe.devices.automatic || even, Fault::usage,
          "devices: {} on each machine requested, but of the ranks, {}", recipe.devices.count,
          fmt::join(each, ", "));
  if (recipe.strategy.kind != Strategy::hybrid) return;
  require(even, Fault::usage,
          "strategy: hybrid needs as many ranks on each machine, but {}; use as many, or another "
          "strategy",
          fmt::join(each, ", "));
  require(neighbours, Fault::usage,
          "strategy: hybrid needs neighbouring ranks on each machine, but the machines take turns: "
          "{}; use mpirun --map-by slot",
          fmt::join(hosts, ", "));
}

// For a process that hangs in code that is not ours: mpirun then ends the others. Who tells stays
// until those whose time is over a little later have found that they need not.
void end_process(const std::string& why, bool tells) {
  const Failure failure = failure_of(std::make_exception_ptr(Error(Fault::peer, why)));
  if (tells) tell(failure);
  std::this_thread::sleep_for(std::chrono::milliseconds(tells ? 900 : 500));
  ::_exit(failure.exit_code);
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

void require_no_copy(std::string_view command) {
  const auto copies = launched_copies(environment());
  if (!copies) return;
  require(copies->number == 0, Fault::usage, "copy {} of {} ends; the first says why",
          copies->number, copies->count);
  const bool slurm = copies->launcher == "srun";
  fail(Fault::usage,
       "{} started {} copies of this program, and each would train alone; let mpirun start them as "
       "ranks of one run{}: mpirun -n {} capstan {} …{}",
       copies->launcher, copies->count, slurm ? ", in the script of the job" : "", copies->count,
       command, slurm ? " (or srun --mpi=pmix, if MPI and Slurm have it)" : "");
}

void warn_of_idle_tasks(std::string_view command) {
  if (const auto tasks = tasks_beside(environment()))
    log::warn(
        "{} is {}, but this process trains alone; to train on as many ranks: mpirun -n {} "
        "capstan {} …",
        tasks->variable, tasks->count, tasks->count, command);
}

int64_t ranks_per_machine(const Recipe& recipe) {
  if (!recipe.devices.automatic) return recipe.devices.count;
  return device_of(recipe.accelerator) == Device::cuda ? std::max(1, gpu_count()) : 1;
}

Placement place_ranks(const Recipe& recipe) {
  require(recipe.num_nodes == 1, Fault::usage,
          "num_nodes: {} requested; start the ranks with mpirun, which knows the machines: mpirun "
          "-n RANKS --host A,B capstan …",
          recipe.num_nodes);
  const int64_t ranks = ranks_per_machine(recipe);
  tell_strategy(recipe);
  const Placement placement{static_cast<int>(ranks), gpus_of(recipe, ranks)};
  if (placement.gpus.empty() && ranks > num_threads())
    log::warn("devices: {} share {}: each takes longer than alone", count(ranks, "rank"),
              count(num_threads(), "core"));
  return placement;
}

int run_in_threads(const Placement& placement, const Recipe& recipe,
                   const std::function<int(Communicator)>& body) {
  const std::vector<int>& gpus = placement.gpus;
  if (placement.ranks == 1) {
    // The first is chosen already; asking for it would start CUDA before it is measured.
    if (!gpus.empty() && gpus[0] != 0) use_gpu(gpus[0]);
    return body({});
  }
  if (!gpus.empty()) let_gpus_share_memory(gpus);
  std::atomic<int> code = 0;
  run_as_threads(
      placement.ranks,
      [&](Communicator group) {
        if (!gpus.empty()) use_gpu(gpus[static_cast<size_t>(group.rank())]);
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
  tell_strategy(recipe);
  const auto hosts = talk_->exchange(host_name());
  require_machines(recipe, hosts);
  const auto own = hosts.begin() + group_.rank();
  if (const auto gpus = gpus_of(recipe, std::count(hosts.begin(), hosts.end(), *own));
      !gpus.empty()) {
    use_gpu(gpus[static_cast<size_t>(std::count(hosts.begin(), own, *own))]);
    group_ = over_nccl(group_, duration(recipe.timeout));
  }
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

void LaunchedRank::meet() {
  talk_->exchange("");
}

int run_as_launched(double timeout, const std::function<int(LaunchedRank&)>& body) {
  write_past_launcher();
  using Doing = LaunchWatch::Doing;
  LaunchWatch watch(launched_ranks().value_or(Ranks()), host_name(), end_process);
  watch.limit(Doing::start, duration(timeout));
  const std::unique_ptr<ProcessGroup> processes = join_launched_ranks(duration(timeout));
  watch.lift();
  const log::Quiet quiet(processes->communicator().rank() != 0);
  LaunchedRank launched(*processes);
  try {
    const int code = body(launched);
    launched.meet();  // the others may take their time, but not to end MPI
    watch.limit(Doing::end, duration(timeout));
    return code;
  } catch (...) {
    launched.fail_all(std::current_exception());
  }
}

}  // namespace capstan::cli
