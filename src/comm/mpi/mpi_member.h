#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/process_group.h"
#include "comm/transport.h"

namespace capstan {

namespace mpi {
// Tags. A channel has two: for data, and for why it ended.
inline constexpr int kHello = 1, kData = 2, kFailure = 3, kPing = 4, kPong = 5, kFirstChannel = 16;
inline constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one message: MPI counts in int
}  // namespace mpi

// One rank of a group of MPI's processes. Collectives are done one after the other by one thread:
// what it does with them is in mpi_moves.cpp. Channels (mpi_channel.cpp) use the thread of their
// caller.
class MpiMember : public Transport, public std::enable_shared_from_this<MpiMember> {
 public:
  using Duration = ProcessGroup::Duration;

  MpiMember(const Ranks& ranks, Duration timeout);
  // Ends MPI; after an error, all processes.
  ~MpiMember() override;

  int64_t room_for(int64_t whole_bytes) const override { return whole_bytes; }

  uint64_t begin(Queue& q, const Collective& c) override;

  void finish(Queue&, uint64_t sequence) override;

  void check() override;

  std::vector<int> silent_since(std::chrono::steady_clock::time_point then) override;

  // The group's thread tells the others.
  void abort(std::string_view why) noexcept override;

  std::unique_ptr<HostChannel> open_channel(std::string name) override;

  void set_timeout(Duration timeout) { timeout_ = timeout; }

  // As ProcessGroup's. A rank that failed by itself tells the user, unless a lower one does; a rank
  // that does not leaves it the time.
  bool report(std::string_view why, bool consequence) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void throw_error() const;

  void run();

  // None: the group ends.
  std::optional<Collective> wait_for_work();

  // Other ranks that wait for this one, beside the collectives, ask whether its process lives.
  void answer_pings();
  // With calls_ locked.
  static void send_empty(int to, int tag);

  // Why this rank failed, to all others.
  void tell_failure();

  // A text to all others; they may be gone.
  void tell(const std::string& text, int tag);

  struct Told {
    int rank;
    std::string text;
  };
  // What another rank has told, if it has.
  std::optional<Told> told(int tag);
  std::optional<Told> told_failure() { return told(mpi::kFailure); }

  // Throws what another rank has told; from then on, everything does.
  void hear_failure();

  // Every rank tells every other what it is about to do.
  void greet(const Collective& c);

  // Both send before they receive: a rank that is later announces its data before it accepts the
  // other's, which would otherwise fill the line, and the announcement's answer wait behind it. So
  // large messages go in both directions at once.
  void move(const Collective& c);

  void gather(const Collective& c);

  // The slices of the other ranks come into the room, then all are added in rank order.
  void sum(const Collective& c);

  void send(const void* from, int64_t bytes, int to, int tag);
  void receive(void* to, int64_t bytes, int from, int tag);
  template <class Body>
  static void each_message(int64_t bytes, const Body& body) {
    for (int64_t first = 0; first < bytes; first += mpi::kMostBytes)
      body(first, static_cast<int>(std::min(mpi::kMostBytes, bytes - first)));
  }

  // Waits for all messages that were begun. MPI moves data only while it is called, and not all
  // that has arrived: so several calls at a time, without sleeping as long as data would take
  // through memory, then with pauses that grow.
  void wait(const Collective& c);

  // Throws if the group has ended, or another rank has failed.
  void look_around();

  // Throws, unless all has arrived by now: this rank itself may have been stopped.
  void give_up(const Collective& c);

  friend class MpiChannel;

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

}  // namespace capstan
