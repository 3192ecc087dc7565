#include "comm/mpi/mpi_group.h"

#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/transport.h"
#include "ops/cpu/sum_slices.h"

namespace capstan {
namespace {

using Kind = Collective::Kind;
using Clock = std::chrono::steady_clock;

constexpr int kHello = 1, kData = 2;              // tags
constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one message: MPI counts in int

Tensor slice(const Tensor& whole, int rank, int size) {
  const int64_t each = whole.numel() / size;
  return whole.reshape({whole.numel()}).rows(rank * each, each);
}

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
        thread_([this] { run(); }) {
    require(static_cast<size_t>(size()) <= kMostSlices, Fault::usage,
            "a group has 1 to {} ranks, not {}", kMostSlices, size());
  }

  ~Member() override {
    {
      const std::lock_guard lock(mutex_);
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
    q.synchronize();
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

  void abort(std::string_view why) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::make_exception_ptr(Error(Fault::peer, std::string(why)));
    changed_.notify_all();
  }

 private:
  void throw_error() const {
    if (error_) std::rethrow_exception(error_);
  }

  void run() {
    for (;;) {
      Collective next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || error_ || !waiting_.empty(); });
        if (error_ || waiting_.empty()) return;
        next = waiting_.front();
      }
      try {
        greet(next);
        move(next);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        changed_.notify_all();
        return;
      }
      {
        const std::lock_guard lock(mutex_);
        waiting_.pop_front();
        ++complete_;
      }
      changed_.notify_all();
    }
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
      const Tensor to = slice(c.whole, r, size());
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
      term = slice(c.whole, rank(), size());
      if (r == rank()) continue;
      term = room_.rows(r * each, each).viewed_as(c.whole.dtype());
      receive(term.raw(), each, r, kData);
      send(slice(c.whole, r, size()).raw(), each, r, kData);
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
  bool ended_ = false;

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
