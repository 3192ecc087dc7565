#include "comm/mpi/mpi_group.h"

#include <fmt/ranges.h>
#include <mpi.h>
#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
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

constexpr int kHello = 1, kData = 2, kFailure = 3;  // tags
constexpr int64_t kMostBytes = int64_t{1} << 30;    // of one message: MPI counts in int

int started() {
  int before = 0, provided = 0;
  MPI_Initialized(&before);
  require(before == 0, Fault::bug, "MPI was started twice");
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  require(provided >= MPI_THREAD_SERIALIZED, Fault::device,
          "MPI: this library does not allow calls from several threads; use one that was built "
          "with thread support");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int number_of_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace

// Collectives are done one after the other by one thread, the only one that calls MPI.
class MpiGroup::Member : public Transport {
 public:
  explicit Member(Duration timeout)
      : Transport(started(), number_of_ranks(), "dp"),
        timeout_(timeout),
        hellos_(static_cast<size_t>(size())),
        terms_(static_cast<size_t>(size())),
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
    if (error_)
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

 private:
  void throw_error() const {
    if (error_) std::rethrow_exception(error_);
  }

  void run() {
    // As the rank's own thread does; it has its cores already.
    omp_set_num_threads(1);
    flush_subnormals();
    while (const std::optional<Collective> next = wait_for_work()) {
      try {
        greet(*next);
        move(*next);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
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
    changed_.wait(lock, [&] { return ended_ || error_ || !waiting_.empty(); });
    if (error_ || waiting_.empty()) return {};
    return waiting_.front();
  }

  // Why this rank failed, to all others; they may be gone.
  void tell_failure() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = failure_;
    }
    if (text.empty()) return;
    std::vector<MPI_Request> messages;
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, r, kFailure, MPI_COMM_WORLD,
                  &messages.emplace_back());
    const auto deadline = Clock::now() + std::chrono::milliseconds(500);
    for (int done = 0; done == 0 && Clock::now() < deadline;
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      MPI_Testall(static_cast<int>(messages.size()), messages.data(), &done, MPI_STATUSES_IGNORE);
  }

  // Throws what another rank has told.
  void hear_failure() {
    MPI_Status status;
    int there = 0, bytes = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kFailure, MPI_COMM_WORLD, &there, &status);
    if (there == 0) return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<size_t>(bytes), ' ');
    MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kFailure, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    fail(Fault::peer, "rank {}: {}", status.MPI_SOURCE, text);
  }

  // Every rank tells every other what it is about to do.
  void greet(const Collective& c) {
    hello_ = fingerprint(c);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      receive(&hellos_[static_cast<size_t>(r)], sizeof hello_, r, kHello);
      send(&hello_, sizeof hello_, r, kHello);
    }
    wait(c);
    for (int r = 0; r < size(); ++r)
      require(r == rank() || hellos_[static_cast<size_t>(r)] == hello_, Fault::peer,
              "group {}, collective {}: rank {} called {}, rank {} something else", name(),
              complete_, rank(), c.describe(), r);
  }

  void move(const Collective& c) {
    if (c.kind != Kind::all_gather) sum(c);
    if (c.kind != Kind::reduce_scatter) gather(c);
  }

  void gather(const Collective& c) {
    for (int r = 0; r < size(); ++r) {
      const Tensor to = slice_of_rank(c.whole, r, size());
      if (r == rank()) {
        if (to.raw() != c.mine.raw())
          std::memcpy(to.raw(), c.mine.raw(), static_cast<size_t>(to.nbytes()));
        continue;
      }
      receive(to.raw(), to.nbytes(), r, kData);
      send(c.mine.raw(), c.mine.nbytes(), r, kData);
    }
    wait(c);
  }

  // The slices of the other ranks come into the room, then all are added in rank order.
  void sum(const Collective& c) {
    const int64_t each = c.mine.nbytes();
    require(room_ && each * size() <= room_.nbytes(), Fault::bug,
            "group {}: {} needs more room than the {} bytes there are", name(), c.describe(),
            room_ ? room_.nbytes() : 0);
    for (int r = 0; r < size(); ++r) {
      Tensor& term = terms_[static_cast<size_t>(r)];
      term = slice_of_rank(c.whole, rank(), size());
      if (r == rank()) continue;
      term = room_.rows(r * each, each).viewed_as(c.whole.dtype());
      receive(term.raw(), each, r, kData);
      send(slice_of_rank(c.whole, r, size()).raw(), each, r, kData);
    }
    wait(c);
    cpu::sum_slices(c.mine, terms_, c.mode);
  }

  void send(const void* from, int64_t bytes, int to, int tag) {
    each_message(bytes, [&](int64_t first, int count) {
      MPI_Isend(static_cast<const std::byte*>(from) + first, count, MPI_BYTE, to, tag,
                MPI_COMM_WORLD, &requests_.emplace_back());
      peers_.push_back(to);
    });
  }
  void receive(void* to, int64_t bytes, int from, int tag) {
    each_message(bytes, [&](int64_t first, int count) {
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

  // Waits for all messages that were begun; sleeps longer the longer that takes.
  void wait(const Collective& c) {
    const auto deadline = Clock::now() + timeout_;
    auto pause = std::chrono::microseconds(0);
    for (int done = 0;;) {
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) break;
      {
        const std::lock_guard lock(mutex_);
        throw_error();
      }
      hear_failure();
      if (Clock::now() > deadline) give_up(c);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(200));
    }
    requests_.clear();
    peers_.clear();
  }

  [[noreturn]] void give_up(const Collective& c) {
    std::vector<int> missing;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      if (requests_[i] != MPI_REQUEST_NULL && done == 0 &&
          std::find(missing.begin(), missing.end(), peers_[i]) == missing.end())
        missing.push_back(peers_[i]);
    }
    fail(Fault::peer, "group {}, collective {}: rank {} waited {:g} s for rank {} in {}", name(),
         complete_, rank(), std::chrono::duration<double>(timeout_).count(),
         fmt::join(missing, ", "), c.describe());
  }

  Duration timeout_;
  uint64_t begun_ = 0;  // of the rank's thread

  std::mutex mutex_;  // for the following
  std::condition_variable changed_;
  std::deque<Collective> waiting_;  // the first is being done
  uint64_t complete_ = 0;
  std::exception_ptr error_;
  std::string failure_;  // of this rank itself, for the others
  bool ended_ = false, left_ = false;

  // Of the group's thread.
  uint64_t hello_ = 0;
  std::vector<uint64_t> hellos_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests
  std::vector<Tensor> terms_;
  std::thread thread_;  // last: it uses the others
};

MpiGroup::MpiGroup(Duration timeout) : member_(std::make_shared<Member>(timeout)) {}
MpiGroup::~MpiGroup() = default;

Communicator MpiGroup::communicator() const {
  if (member_->size() == 1) return {};
  return Communicator(member_);
}

}  // namespace capstan
