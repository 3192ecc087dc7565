#include "comm/mpi/mpi_member.h"

#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/subnormals.h"

namespace capstan {
namespace {

// For a thread that often has a little to do while others compute: it is woken on time, and may
// then interrupt them. Where the system does not know such wishes, nothing changes.
void ask_for_short_turns() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds
  struct {
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 100'000, deadline = 0, period = 0;  // nanoseconds of a turn
  } wish;
  static_assert(sizeof wish == 48);
  wish.nice = ::getpriority(PRIO_PROCESS, 0);
  ::syscall(SYS_sched_setattr, 0, &wish, 0);
}

}  // namespace

MpiMember::MpiMember(std::shared_ptr<MpiProcess> process)
    : Transport(process->ranks().rank, process->ranks().size, "dp"),
      process_(std::move(process)),
      hellos_(static_cast<size_t>(size())) {
  start();
}

MpiMember::MpiMember(std::shared_ptr<MpiMember> root, int id, const Ranks& ranks,
                     const Members& members, std::string name, Lane lane)
    : Transport(ranks.rank, ranks.size, std::move(name), lane, members),
      process_(root->process_),
      root_(std::move(root)),
      id_(id),
      hellos_(static_cast<size_t>(size())) {
  start();
}

void MpiMember::start() {
  process_->enter(changed_);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    process_->leave(changed_);
    throw;
  }
}

MpiMember::~MpiMember() {
  {
    const std::lock_guard lock(process_->mutex);
    const std::string why = "a rank left its group too early";
    if (!waiting_.empty()) process_->end(std::make_exception_ptr(Error(Fault::peer, why)), why);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<Transport> MpiMember::split(const Ranks& ranks, const Members& members,
                                            std::string name, Lane lane) {
  require(!root_, Fault::bug, "group {}: group {} was itself split from another one", name,
          this->name());
  require(++splits_ < kMostGroups, Fault::bug, "group {}: more than {} groups", name, kMostGroups);
  if (members.count == 1) return nullptr;
  return std::make_shared<MpiMember>(shared_from_this(), splits_, ranks, members, std::move(name),
                                     lane);
}

Members MpiMember::in_world() const {
  const int first = among_all(0), stride = size() > 1 ? among_all(1) - first : 1;
  return {.first = first, .stride = stride, .count = size()};
}

uint64_t MpiMember::begin(Queue& q, const Collective& c) {
  require(q.device() == Device::cpu, Fault::usage, "ranks of MPI train on a CPU");
  {
    const std::lock_guard lock(process_->mutex);
    process_->throw_error();
    waiting_.push_back(c);
  }
  changed_.notify_all();
  return begun_++;
}

void MpiMember::finish(Queue&, uint64_t sequence) {
  std::unique_lock lock(process_->mutex);
  const MpiProcess::Waits waits(*process_, missing_);
  changed_.wait(lock, [&] { return process_->ended() || complete_ > sequence; });
  if (complete_ <= sequence) process_->throw_error();
}

std::vector<int> MpiMember::silent_since(Clock::time_point then) {
  std::vector<int> silent = process_->silent_since(then, in_world());
  const Members all = in_world();
  for (int& r : silent) r = (r - all.first) / all.stride;
  return silent;
}

void MpiMember::run() {
  // As the rank's own thread does; it has its cores already.
  omp_set_num_threads(1);
  flush_subnormals();
  ask_for_short_turns();
  while (const std::optional<Collective> next = wait_for_work()) {
    try {
      greet(*next);
      move(*next);
    } catch (const std::exception& e) {
      const std::lock_guard lock(process_->mutex);
      process_->end(std::current_exception(), e.what());
      continue;
    }
    {
      const std::lock_guard lock(process_->mutex);
      waiting_.pop_front();
      ++complete_;
    }
    changed_.notify_all();
  }
  process_->leave(changed_);
}

std::optional<Collective> MpiMember::wait_for_work() {
  std::unique_lock lock(process_->mutex);
  const auto something = [&] { return leaving_ || process_->ended() || !waiting_.empty(); };
  if (root_) changed_.wait(lock, something);  // the group of all ranks listens
  while (!changed_.wait_for(lock, std::chrono::milliseconds(50), something)) {
    lock.unlock();
    listen();
    lock.lock();
  }
  if (process_->ended() || waiting_.empty()) return {};
  return waiting_.front();
}

void MpiMember::listen() {
  process_->answer_pings();
  try {
    process_->hear_failure();
  } catch (const Error&) {  // kept: whoever calls next gets it
  }
}

}  // namespace capstan
