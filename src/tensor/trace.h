#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensor/lane.h"
#include "tensor/memory_plan.h"

namespace capstan {

class Arena;

// A slice of a timeline. Times are seconds since the trace began.
struct TraceEvent {
  std::string name;
  int row = 0;
  double begin = 0, end = 0;
  double flops = 0, bytes = 0;  // 0: not known
  int phase = -1;               // index into Trace::phases(), or none
  std::string note = {};
};

// Memory in use from `time` on.
struct TraceMemory {
  double time = 0;
  ByCategory bytes{};
};

inline double host_seconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// What a queue does over some time, such as one step: Queue::trace_to. It has a row for each lane,
// and one for the phases of the arena. Not thread safe.
//
// It keeps `most` events. What comes later extends one event for each row, "more ops", so that rows
// still have no gap, and finish() notes how many they are.
class Trace {
 public:
  static constexpr size_t kMost = 200'000;
  static constexpr int kPhases = 0;  // the row of phases; those of lanes follow it
  static constexpr int row(Lane lane) { return static_cast<int>(lane) + 1; }
  static constexpr int kRows = kLanes + 1;

  // `start` is of the clock of all times that the functions below take.
  explicit Trace(double start = 0, size_t most = kMost) : start_(start), most_(most) {}

  // Both return the number of the event; that of the second ends later.
  size_t add(TraceEvent event);
  size_t begin(TraceEvent event);
  void end(size_t number, double time);
  // Notes the arena's phase and the memory in use: before each op, and after requests for scratch.
  void look(const Arena& arena, double time);
  double last_begin() const { return last_begin_ + start_; }

  // Forgets what ended before this time, which is the new start. What is under way remains, cut.
  void restart(double time);
  // Cuts what goes on after this time, and adds one event in the row of phases over all of it.
  void finish(double time, std::string name);

  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<TraceMemory>& memory() const { return memory_; }
  const std::vector<std::string>& phases() const { return phases_; }
  double seconds() const { return seconds_; }     // after finish()
  int64_t left_out() const { return left_out_; }  // events, and changes of memory

 private:
  void end_phase();
  size_t keep(TraceEvent event);
  void end_at(size_t number, double time);

  double start_;
  size_t most_;
  std::vector<TraceEvent> events_;
  std::vector<TraceMemory> memory_;
  std::vector<std::string> phases_;
  std::map<std::string, int, std::less<>> visits_;  // of phases, by name
  int phase_ = -1;                                  // of what comes now
  uint64_t visit_ = 0;                              // of it, in the arena
  double phase_begin_ = 0, last_begin_ = 0, last_end_ = 0;
  int64_t more_[kRows] = {};  // 1 + the number of a row's "more ops", or 0
  int64_t left_out_ = 0;
  double seconds_ = 0;
};

}  // namespace capstan
