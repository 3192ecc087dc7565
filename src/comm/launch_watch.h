#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/presence.h"

namespace capstan {

// The longest that the start and the end of MPI may take. Both wait for every rank, in code that no
// timeout reaches: a thread of this object's own watches, and tells what the ranks of this machine
// know of each other (Presence). While the object lives, others learn that this process runs.
class LaunchWatch {
 public:
  using Duration = std::chrono::steady_clock::duration;
  // Called on the watch's thread when the time is over, to end the process: nothing else can end
  // what hangs. `tells` is true for one rank of a machine, and false for those that leave it the
  // word.
  using GiveUp = std::function<void(const std::string& why, bool tells)>;

  LaunchWatch(const Ranks& own, std::string host, GiveUp give_up);
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  // From now on, MPI has this long to `start` or to `end`; until lift().
  enum class Doing { start, end };
  void limit(Doing doing, Duration longest);
  void lift();

 private:
  using Clock = std::chrono::steady_clock;
  struct Limit {
    Doing doing = Doing::start;
    Duration longest = {};
    Clock::time_point since = {};
  };

  void set(std::optional<Limit> limit, bool leaving);
  void watch();
  void give_up(const Limit& limit);

  const Ranks own_;
  const std::string host_;
  const GiveUp give_up_;
  std::optional<Presence> presence_;  // the thread's

  std::mutex mutex_;  // for the next two
  std::optional<Limit> limit_;
  bool leaving_ = false;
  int changed_ = -1;  // an eventfd
  std::thread thread_;
};

// What one rank can say of the others that it waits for.
//   own: this rank, which has waited on `host`
//   here: ranks that the launcher started there, if it tells
//   others: what Presence found there; none if it could not look
std::string waited_for(LaunchWatch::Doing doing, const Ranks& own, std::string_view host,
                       std::optional<int> here,
                       const std::optional<std::vector<Presence::Found>>& others);

}  // namespace capstan
