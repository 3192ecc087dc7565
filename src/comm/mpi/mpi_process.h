#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/process_group.h"
#include "comm/ranks.h"
#include "comm/wait_cause.h"

namespace capstan {

namespace mpi {

// Tags of the process. Those of its groups begin at kFirstGroup.
inline constexpr int kFailure = 1, kPing = 2, kPong = 3, kFirstGroup = 16;
inline constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one message: MPI counts in int

// Calls body(first, count) for the bytes of each message.
template <class Body>
void each_message(int64_t bytes, const Body& body) {
  for (int64_t first = 0; first < bytes; first += kMostBytes)
    body(first, static_cast<int>(std::min(kMostBytes, bytes - first)));
}

}  // namespace mpi

// This process as one rank of MPI's: what all of its groups (MpiMember) share. They end together:
// after an error of one of them, or one that another rank tells of, the next call of each throws.
// Ranks are those of MPI_COMM_WORLD.
class MpiProcess {
 public:
  using Duration = ProcessGroup::Duration;
  using Clock = std::chrono::steady_clock;

  // Starts MPI: once in a process. Throws Fault::device if MPI does not allow calls from several
  // threads.
  explicit MpiProcess(Duration timeout);
  // Ends MPI; after an error, all processes. No group has a thread any more.
  ~MpiProcess();
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  const Ranks& ranks() const { return ranks_; }
  Duration timeout() const { return timeout_; }
  void set_timeout(Duration timeout) { timeout_ = timeout; }

  // MPI is called by one thread at a time: inside of this.
  template <class Calls>
  void call(const Calls& calls) {
    const std::lock_guard lock(calls_);
    calls();
  }

  // For the end of the groups, and for what each has in its queue.
  std::mutex mutex;
  // Whether the groups have ended. With the mutex locked, as the next two.
  bool ended() const { return error_ != nullptr; }
  void throw_error() const;
  // Ends the groups, unless they have ended, and wakes their threads. The others are told `failure`
  // by the first thread that leaves; nothing if it is empty.
  void end(std::exception_ptr why, std::string_view failure);

  // A thread that works for a group, and how to wake it.
  void enter(std::condition_variable& changed);
  void leave(std::condition_variable& changed);

  // Throws if the groups have ended.
  void check();
  // Ends the groups with this failure. Returns when all their threads have left.
  void abort(std::string_view why) noexcept;
  // As ProcessGroup's. A rank that failed by itself tells the user, unless a lower one does; a rank
  // that does not leaves it the time.
  bool report(std::string_view why, bool consequence) noexcept;

  // Throws what another rank has told; from then on, everything does.
  void hear_failure();
  // Ranks that wait for this one ask, beside the collectives, whether its process lives and whom it
  // waits for itself. Asks those that it hears of by such answers.
  void answer_pings();
  // Asks these ranks, whose answers tell of others that are asked then, and so on.
  void ask(const std::vector<int>& ranks);
  // What is known of a rank that was asked. It is silent if it has not answered for a quarter of
  // the timeout, or 5 s.
  RankState state_of(int rank);
  // Those that have not answered since then; asks all of them again.
  std::vector<int> silent_since(Clock::time_point then, const Members& others);
  // When a rank has last asked or answered.
  Clock::time_point heard_from(int rank);

  // While it lives, the rank waits for these: if that is its own thread. With the mutex locked as
  // it begins and ends, and where the list changes.
  class Waits {
   public:
    Waits(MpiProcess& process, const std::vector<int>& ranks);
    ~Waits();
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

   private:
    MpiProcess* process_;  // null: another thread
  };

  struct Told {
    int rank;
    std::string text;
  };
  // What another rank has told, if it has.
  std::optional<Told> told(int tag);
  // A text to the others of these; they may be gone.
  void tell(const std::string& text, int tag, const Members& others);

  // Another rank told of its failure.
  void note_heard() { heard_ = true; }
  // Messages may be pending that no rank will complete: MPI cannot end in order. Returns whether
  // that was known.
  bool note_broken() { return broken_.exchange(true); }

 private:
  // What is heard of another rank.
  struct Peer {
    Clock::time_point heard = {};            // its last question or answer
    std::optional<Clock::time_point> asked;  // the first question that is open since
    uint64_t round = 0;                      // in which it was asked last
    RankState state;                         // by its last answer
  };

  // With calls_ locked.
  void send_ping(int to);
  void send_pong(int to, const std::vector<int>& text);
  void hear_pong(Peer& peer, const std::vector<int>& text);
  // [1, ranks…]: it waits for them; [0]: it does not.
  std::vector<int> own_pong();
  void tell_failure();

  Ranks ranks_;
  std::atomic<Duration> timeout_;
  const std::thread::id own_thread_ = std::this_thread::get_id();
  std::mutex calls_;         // also for the next three
  std::vector<Peer> peers_;  // by rank
  uint64_t round_ = 0;       // of questions: in each, a rank is asked once
  std::list<std::pair<MPI_Request, std::vector<int>>> pongs_;  // on their way

  // With the mutex locked.
  const std::vector<int>* waits_ = nullptr;        // the ranks that this one waits for
  std::condition_variable left_;                   // a thread has
  std::vector<std::condition_variable*> threads_;  // that have not
  std::exception_ptr error_;
  std::string failure_;  // of this rank itself, for the others; empty once a thread tells them

  std::atomic<bool> heard_ = false;    // another rank told of its failure
  std::atomic<int> failed_ = INT_MAX;  // which
  std::atomic<bool> broken_ = false;
};

}  // namespace capstan
