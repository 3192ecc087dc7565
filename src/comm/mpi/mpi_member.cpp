#include "comm/mpi/mpi_member.h"

#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/subnormals.h"

namespace capstan {

using namespace mpi;

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

MpiMember::MpiMember(const Ranks& ranks, Duration timeout)
    : Transport(ranks.rank, ranks.size, "dp"),
      timeout_(timeout),
      heard_from_(static_cast<size_t>(size())),
      hellos_(static_cast<size_t>(size())),
      thread_([this] { run(); }) {}

MpiMember::~MpiMember() {
  {
    const std::lock_guard lock(mutex_);
    if (!error_ && !waiting_.empty())
      error_ = std::make_exception_ptr(Error(Fault::peer, "a rank left its group too early"));
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // The others were told why; they end with it, if they hear it before this ends them.
  if (error_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (error_ || broken_)
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Fault::peer));
  else
    MPI_Finalize();
}

uint64_t MpiMember::begin(Queue& q, const Collective& c) {
  require(q.device() == Device::cpu, Fault::usage, "ranks of MPI train on a CPU");
  {
    const std::lock_guard lock(mutex_);
    throw_error();
    waiting_.push_back(c);
  }
  changed_.notify_all();
  return begun_++;
}

void MpiMember::finish(Queue&, uint64_t sequence) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || complete_ > sequence; });
  if (complete_ <= sequence) throw_error();
}

void MpiMember::check() {
  const std::lock_guard lock(mutex_);
  throw_error();
}

std::vector<int> MpiMember::silent_since(Clock::time_point then) {
  const std::lock_guard lock(calls_);
  std::vector<int> silent;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (heard_from_[static_cast<size_t>(r)] < then) silent.push_back(r);
    send_empty(r, kPing);
  }
  return silent;
}

void MpiMember::abort(std::string_view why) noexcept {
  std::unique_lock lock(mutex_);
  if (!error_) {
    error_ = std::make_exception_ptr(Error(Fault::peer, std::string(why)));
    failure_ = why;
  }
  changed_.notify_all();
  changed_.wait(lock, [&] { return left_; });
}

bool MpiMember::report(std::string_view why, bool consequence) noexcept {
  abort(why);
  const auto start = Clock::now();
  bool others_do = (consequence && heard_) || failed_ < rank();
  while (!others_do && rank() > 0 && Clock::now() - start < std::chrono::milliseconds(300)) {
    const auto told = told_failure();
    others_do = told && told->rank < rank();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (others_do) std::this_thread::sleep_for(std::chrono::milliseconds(800));
  return !others_do;
}

void MpiMember::throw_error() const {
  if (error_) std::rethrow_exception(error_);
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
      const std::lock_guard lock(mutex_);
      if (!error_) {
        error_ = std::current_exception();
        failure_ = e.what();
      }
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      waiting_.pop_front();
      ++complete_;
    }
    changed_.notify_all();
  }
  tell_failure();
  const std::lock_guard lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

std::optional<Collective> MpiMember::wait_for_work() {
  std::unique_lock lock(mutex_);
  const auto something = [&] { return ended_ || error_ || !waiting_.empty(); };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(50), something)) {
    lock.unlock();
    answer_pings();
    try {
      hear_failure();
    } catch (const Error&) {  // kept: whoever calls next gets it
    }
    lock.lock();
  }
  if (error_ || waiting_.empty()) return {};
  return waiting_.front();
}

void MpiMember::answer_pings() {
  const std::lock_guard lock(calls_);
  for (const int tag : {kPing, kPong})
    for (int there = 1; there != 0;) {
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, &status);
      if (there == 0) continue;
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      heard_from_[static_cast<size_t>(status.MPI_SOURCE)] = Clock::now();
      if (tag == kPing) send_empty(status.MPI_SOURCE, kPong);
    }
}

void MpiMember::send_empty(int to, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
}

void MpiMember::tell_failure() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = failure_;
  }
  if (!text.empty()) tell(text, kFailure);
}

void MpiMember::tell(const std::string& text, int tag) {
  std::vector<MPI_Request> messages(static_cast<size_t>(size()), MPI_REQUEST_NULL);
  {
    const std::lock_guard lock(calls_);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, r, tag, MPI_COMM_WORLD,
                  &messages[static_cast<size_t>(r)]);
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(500);
  for (int done = 0; done == 0 && Clock::now() < deadline;
       std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const std::lock_guard lock(calls_);
    MPI_Testall(static_cast<int>(messages.size()), messages.data(), &done, MPI_STATUSES_IGNORE);
  }
}

std::optional<MpiMember::Told> MpiMember::told(int tag) {
  const std::lock_guard lock(calls_);
  MPI_Status status;
  int there = 0, bytes = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return std::nullopt;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Told t{status.MPI_SOURCE, std::string(static_cast<size_t>(bytes), ' ')};
  MPI_Recv(t.text.data(), bytes, MPI_BYTE, t.rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return t;
}

void MpiMember::hear_failure() {
  const auto failure = told_failure();
  if (!failure) return;
  const std::string why = fmt::format("rank {}: {}", failure->rank, failure->text);
  const std::lock_guard lock(mutex_);
  heard_ = true;
  failed_ = failure->rank;
  if (!error_) error_ = std::make_exception_ptr(Error(Fault::peer, why));
  changed_.notify_all();
  throw_error();
}

}  // namespace capstan
