#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace capstan {

// How far some work is. Without a total, only its time is known.
struct WorkState {
  std::string what;             // "tokenizing"
  std::string unit = {};        // "records", "bytes"; may be empty
  int64_t done = 0, total = 0;  // total 0: unknown
  double elapsed = 0;           // seconds
};
// "tokenizing:  43%|███▍    | 21.5M/50.0M bytes [00:11<00:15, 1.9M/s]" in fewer than `columns`
// columns, or "verifying settings: [00:12]".
std::string work_bar(const WorkState& state, int columns);
// "tokenizing: 43%, 21.5M of 50.0M bytes, 1.9M/s, 15 s left", or "verifying settings: 12 s so far".
std::string work_line(const WorkState& state);

// Shows on stderr, while it lives, how far some work is, if it takes longer than a second: on a
// terminal as a bar below all other lines, which disappears with it; elsewhere as a line every ten
// seconds. It has a thread for that, so that the time goes on where the work says nothing; under a
// limit of memory, or where a thread cannot be started, it shows nothing.
class WorkBar {
 public:
  struct Pace {
    std::chrono::milliseconds quiet{1000}, redraw{100}, line{10'000};
  };
  // Not shown: for ranks other than the first.
  explicit WorkBar(std::string what, bool shown = true) : WorkBar(std::move(what), shown, Pace()) {}
  WorkBar(std::string what, bool shown, Pace pace);
  ~WorkBar();
  WorkBar(const WorkBar&) = delete;
  WorkBar& operator=(const WorkBar&) = delete;

  // Of one unit in all calls, which must outlive this. Thread safe.
  void tell(int64_t done, int64_t total, const char* unit = "") {
    unit_ = unit;
    total_ = total;
    done_ = done;
  }

 private:
  void show();
  WorkState state() const;

  const std::string what_;
  const Pace pace_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<int64_t> done_ = 0, total_ = 0;
  std::atomic<const char*> unit_ = "";
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace capstan
