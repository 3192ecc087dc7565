#pragma once

#include <cstdint>
#include <optional>

#include "run/stop_signals.h"

namespace capstan {

// What ends a run before its last step: a signal, train.max_time, or a step that was named.
class StopCondition {
 public:
  explicit StopCondition(std::optional<double> max_time) : max_time_(max_time) {}

  void stop_after(int64_t step) { last_step_ = step; }

  // Whether no further step is taken, as a signal or a named step has it.
  bool stops(int64_t step, const StopSignals& signals) const {
    return signals.caught() != 0 || step >= last_step_;
  }
  void note_time(double seconds) { out_of_time_ = max_time_ && seconds >= *max_time_; }
  bool out_of_time() const { return out_of_time_; }

  // The signal that interrupted the run; 0: none did. A late one came when the steps were done, or
  // while the state was saved: it interrupts what follows.
  int signal() const { return signal_; }
  void interrupt(int signal) { signal_ = signal; }
  void note_late(int signal) { late_signal_ = signal; }
  void interrupt_late(int signal) { signal_ = signal != 0 ? signal : late_signal_; }

 private:
  std::optional<double> max_time_;
  int64_t last_step_ = INT64_MAX;
  bool out_of_time_ = false;
  int signal_ = 0, late_signal_ = 0;
};

}  // namespace capstan
