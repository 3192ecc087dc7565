#include "comm/mpi/mpi_group.h"

#include <fmt/ranges.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/subnormals.h"
#include "comm/transport.h"
#include "ops/cpu/sum_slices.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;
using Clock = std::chrono::steady_clock;

// Tags. A channel has two: for data, and for why it ended.
constexpr int kHello = 1, kData = 2, kFailure = 3, kPing = 4, kPong = 5, kFirstChannel = 16;
constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one message: MPI counts in int

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

// Collectives are done one after the other by one thread. Channels use the thread of their caller.
class MpiGroup::Member : public Transport, public std::enable_shared_from_this<Member> {
 public:
  Member(const Ranks& ranks, Duration timeout)
      : Transport(ranks.rank, ranks.size, "dp"),
        timeout_(timeout),
        heard_from_(static_cast<size_t>(size())),
        hellos_(static_cast<size_t>(size())),
        thread_([this] { run(); }) {}

  ~Member() override {
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

  int64_t room_for(int64_t whole_bytes) const override { return whole_bytes; }

  uint64_t begin(Queue& q, const Collective& c) override {
    require(q.device() == Device::cpu, Fault::usage, "ranks of MPI train on a CPU");
    {
      const std::lock_guard lock(mutex_);
      throw_error();
      waiting_.push_back(c);
    }
    changed_.notify_all();
    return begun_++;
  }

  void finish(Queue&, uint64_t sequence) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || complete_ > sequence; });
    if (complete_ <= sequence) throw_error();
  }

  void check() override {
    const std::lock_guard lock(mutex_);
    throw_error();
  }

  std::vector<int> silent_since(Clock::time_point then) override {
    const std::lock_guard lock(calls_);
    std::vector<int> silent;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (heard_from_[static_cast<size_t>(r)] < then) silent.push_back(r);
      send_empty(r, kPing);
    }
    return silent;
  }

  // The group's thread tells the others.
  void abort(std::string_view why) noexcept override {
    std::unique_lock lock(mutex_);
    if (!error_) {
      error_ = std::make_exception_ptr(Error(Fault::peer, std::string(why)));
      failure_ = why;
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_; });
  }

  std::unique_ptr<HostChannel> open_channel(std::string name) override;

  void set_timeout(Duration timeout) { timeout_ = timeout; }

  // As ProcessGroup's. A rank that failed by itself tells the user, unless a lower one does; a rank
  // that does not leaves it the time.
  bool report(std::string_view why, bool consequence) noexcept {
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

 private:
  void throw_error() const {
    if (error_) std::rethrow_exception(error_);
  }

  void run() {
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

  // None: the group ends.
  std::optional<Collective> wait_for_work() {
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

  // Other ranks that wait for this one, beside the collectives, ask whether its process lives.
  void answer_pings() {
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
  // With calls_ locked.
  static void send_empty(int to, int tag) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }

  // Why this rank failed, to all others.
  void tell_failure() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = failure_;
    }
    if (!text.empty()) tell(text, kFailure);
  }

  // A text to all others; they may be gone.
  void tell(const std::string& text, int tag) {
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

  struct Told {
    int rank;
    std::string text;
  };
  // What another rank has told, if it has.
  std::optional<Told> told(int tag) {
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
  std::optional<Told> told_failure() { return told(kFailure); }

  // Throws what another rank has told; from then on, everything does.
  void hear_failure() {
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

  // Every rank tells every other what it is about to do.
  void greet(const Collective& c) {
    hello_ = fingerprint(c);
    for (int i = 0; i < c.size(); ++i) {
      const int r = c.members.at(i);
      if (r == rank()) continue;
      receive(&hellos_[static_cast<size_t>(r)], sizeof hello_, r, kHello);
      send(&hello_, sizeof hello_, r, kHello);
    }
    wait(c);
    for (int i = 0, r = c.members.first; i < c.size(); r = c.members.at(++i))
      require(r == rank() || hellos_[static_cast<size_t>(r)] == hello_, Fault::peer,
              "group {}, collective {}: rank {} called {}, rank {} something else", name(),
              complete_, rank(), c.describe(), r);
  }

  // Both send before they receive: a rank that is later announces its data before it accepts the
  // other's, which would otherwise fill the line, and the announcement's answer wait behind it. So
  // large messages go in both directions at once.
  void move(const Collective& c) {
    if (c.kind != Kind::all_gather) sum(c);
    if (c.kind != Kind::reduce_scatter) gather(c);
  }

  void gather(const Collective& c) {
    for (int i = 0; i < c.size(); ++i) {
      const Tensor to = c.slice(i);
      if (i == c.index) {
        if (to.raw() != c.mine.raw())
          std::memcpy(to.raw(), c.mine.raw(), static_cast<size_t>(to.nbytes()));
        continue;
      }
      send(c.mine.raw(), c.mine.nbytes(), c.members.at(i), kData);
      receive(to.raw(), to.nbytes(), c.members.at(i), kData);
    }
    wait(c);
  }

  // The slices of the other ranks come into the room, then all are added in rank order.
  void sum(const Collective& c) {
    const int64_t each = c.mine.nbytes();
    require(room_ && each * c.size() <= room_.nbytes(), Fault::bug,
            "group {}: {} needs more room than the {} bytes there are", name(), c.describe(),
            room_ ? room_.nbytes() : 0);
    terms_.assign(static_cast<size_t>(c.size()), c.slice(c.index));
    for (int i = 0; i < c.size(); ++i) {
      if (i == c.index) continue;
      Tensor& term = terms_[static_cast<size_t>(i)];
      term = room_.rows(i * each, each).viewed_as(c.whole.dtype());
      send(c.slice(i).raw(), each, c.members.at(i), kData);
      receive(term.raw(), each, c.members.at(i), kData);
    }
    wait(c);
    cpu::sum_slices(c.mine, terms_, c.mode);
  }

  void send(const void* from, int64_t bytes, int to, int tag) {
    each_message(bytes, [&](int64_t first, int count) {
      const std::lock_guard lock(calls_);
      MPI_Isend(static_cast<const std::byte*>(from) + first, count, MPI_BYTE, to, tag,
                MPI_COMM_WORLD, &requests_.emplace_back());
      peers_.push_back(to);
    });
  }
  void receive(void* to, int64_t bytes, int from, int tag) {
    moving_ += bytes;
    each_message(bytes, [&](int64_t first, int count) {
      const std::lock_guard lock(calls_);
      MPI_Irecv(static_cast<std::byte*>(to) + first, count, MPI_BYTE, from, tag, MPI_COMM_WORLD,
                &requests_.emplace_back());
      peers_.push_back(from);
    });
  }
  template <class Body>
  static void each_message(int64_t bytes, const Body& body) {
    for (int64_t first = 0; first < bytes; first += kMostBytes)
      body(first, static_cast<int>(std::min(kMostBytes, bytes - first)));
  }

  // Waits for all messages that were begun. MPI moves data only while it is called, and not all
  // that has arrived: so several calls at a time, without sleeping as long as data would take
  // through memory, then with pauses that grow.
  void wait(const Collective& c) {
    constexpr int64_t kBytesPerMicrosecond = 1000, kLatency = 50;  // microseconds
    constexpr int kCalls = 8;
    constexpr auto kLongest = std::chrono::microseconds(500);  // the system buffers as much
    const auto start = Clock::now(), deadline = start + timeout_.load(),
               through_memory =
                   start + std::chrono::microseconds(kLatency + std::exchange(moving_, 0) /
                                                                    kBytesPerMicrosecond);
    auto next_look = Clock::time_point(), next_ping = start + timeout_.load() / 8;
    auto pause = std::chrono::microseconds(0);
    for (int done = 0;;) {
      for (int i = 0; done == 0 && i < kCalls; ++i) {
        const std::lock_guard lock(calls_);
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                    MPI_STATUSES_IGNORE);
      }
      if (done != 0) break;
      const auto now = Clock::now();
      if (now > next_look) {
        next_look = now + std::chrono::microseconds(200);
        look_around();
      }
      if (now > next_ping) {
        next_ping = now + timeout_.load() / 8;
        silent_since(now);  // asks
      }
      if (now > deadline) give_up(c);
      if (now < through_memory) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause + std::chrono::microseconds(5), kLongest);
    }
    requests_.clear();
    peers_.clear();
  }

  // Throws if the group has ended, or another rank has failed.
  void look_around() {
    {
      const std::lock_guard lock(mutex_);
      throw_error();
    }
    hear_failure();
    answer_pings();
  }

  // Throws, unless all has arrived by now: this rank itself may have been stopped.
  void give_up(const Collective& c) {
    std::vector<int> missing;
    {
      const std::lock_guard lock(calls_);
      for (size_t i = 0; i < requests_.size(); ++i) {
        int done = 0;
        if (requests_[i] != MPI_REQUEST_NULL) MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
        if (requests_[i] != MPI_REQUEST_NULL && done == 0 &&
            std::find(missing.begin(), missing.end(), peers_[i]) == missing.end())
          missing.push_back(peers_[i]);
      }
    }
    std::sort(missing.begin(), missing.end());
    // A rank that answers may itself be waiting for one that does not.
    const std::vector<int> silent = silent_since(Clock::now() - timeout_.load() / 2);
    std::vector<int> lost;
    std::set_intersection(missing.begin(), missing.end(), silent.begin(), silent.end(),
                          std::back_inserter(lost));
    if (!lost.empty()) missing = lost;
    require(missing.empty(), Fault::peer,
            "group {}, collective {}: rank {} waited {:g} s for rank {} in {}", name(), complete_,
            rank(), std::chrono::duration<double>(timeout_.load()).count(),
            fmt::join(missing, ", "), c.describe());
  }

  friend class Channel;

  std::atomic<Duration> timeout_;
  uint64_t begun_ = 0;  // of the rank's thread
  int opened_ = 0;      // channels, by the rank's thread
  std::mutex calls_;    // MPI is called by one thread at a time; for heard_from_
  std::vector<Clock::time_point> heard_from_;  // by rank: its last ping or pong

  std::mutex mutex_;  // for the following
  std::condition_variable changed_;
  std::deque<Collective> waiting_;  // the first is being done
  uint64_t complete_ = 0;
  std::exception_ptr error_;
  std::string failure_;  // of this rank itself, for the others
  bool ended_ = false, left_ = false;
  std::atomic<bool> heard_ = false;    // another rank told of its failure
  std::atomic<int> failed_ = INT_MAX;  // which
  std::atomic<bool> broken_ = false;   // messages may be pending that no rank will complete

  // Of the group's thread.
  uint64_t hello_ = 0;
  std::vector<uint64_t> hellos_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests
  int64_t moving_ = 0;      // bytes that they receive
  std::vector<Tensor> terms_;
  std::thread thread_;  // last: it uses the others
};

// Messages of a channel, by the thread that calls.
class MpiGroup::Channel : public HostChannel {
 public:
  Channel(std::shared_ptr<Member> member, int index, std::string name)
      : HostChannel(member->rank(), member->size()),
        member_(std::move(member)),
        tag_(kFirstChannel + 2 * index),
        name_(std::move(name)) {}

  void send(std::span<const std::byte> bytes, int to) override {
    Member::each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Issend(bytes.data() + first, count, MPI_BYTE, to, tag_, MPI_COMM_WORLD, &request);
      }
      wait(request, to);
    });
  }

  void receive(std::span<std::byte> bytes, int from) override {
    Member::each_message(std::ssize(bytes), [&](int64_t first, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Irecv(bytes.data() + first, count, MPI_BYTE, from, tag_, MPI_COMM_WORLD, &request);
      }
      wait(request, from);
    });
  }

  void abort(std::string_view why) noexcept override {
    if (member_->broken_.exchange(true)) return;  // of this channel or of another
    member_->tell(std::string(why), tag_ + 1);
  }

 private:
  void wait(MPI_Request& request, int other) {
    const auto start = Clock::now();
    const Duration timeout = member_->timeout_;
    auto pause = std::chrono::microseconds(0);
    auto next_ping = start + timeout / 8;
    for (int done = 0;;) {
      {
        const std::lock_guard lock(member_->calls_);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      }
      if (done != 0) return;
      try {
        hear();
        member_->answer_pings();
        const auto now = Clock::now();
        if (now > next_ping) {
          next_ping = now + timeout / 8;
          require_alive(std::max(start, now - 2 * timeout), other);
        }
      } catch (const Error&) {
        give_up(request);
        throw;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(200));
    }
  }

  // Asks, and throws if the last answer since `start` is too old.
  void require_alive(Clock::time_point start, int other) {
    const Duration timeout = member_->timeout_;
    const std::lock_guard lock(member_->calls_);
    const auto last = std::max(start, member_->heard_from_[static_cast<size_t>(other)]);
    require(Clock::now() - last < timeout, Fault::peer,
            "channel {}: rank {} waited {:g} s for rank {}", name_, rank(),
            std::chrono::duration<double>(timeout).count(), other);
    Member::send_empty(other, kPing);
  }

  void hear() {
    {
      const std::lock_guard lock(member_->mutex_);
      member_->throw_error();
    }
    member_->hear_failure();
    if (const auto told = member_->told(tag_ + 1)) {
      member_->heard_ = true;
      fail(Fault::peer, "rank {}: {}", told->rank, told->text);
    }
  }

  // The memory belongs to the caller again; the group cannot end in order any more.
  void give_up(MPI_Request& request) {
    member_->broken_ = true;
    const std::lock_guard lock(member_->calls_);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  std::shared_ptr<Member> member_;
  int tag_;
  std::string name_;
};

std::unique_ptr<HostChannel> MpiGroup::Member::open_channel(std::string name) {
  return std::make_unique<Channel>(std::static_pointer_cast<Member>(shared_from_this()), opened_++,
                                   std::move(name));
}

MpiGroup::MpiGroup(Duration timeout) : member_(std::make_shared<Member>(started(), timeout)) {}

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
