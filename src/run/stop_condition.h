#pragma once

#include <cstdint>
#include <optional>

namespace capstan {

// Ends a run before its last step: on a signal, after train.max_time, or after a given step.
class StopCondition {
 public:
  explicit StopCondition(std::optional<double> max_time) : max_time_(max_time) {}

  void stop_after(int64_t step) { last_step_ = step; }

  // Whether a signal (0: none) or the given step ends the run here.
  bool stops(int64_t step, int signal) const { return signal != 0 || step >= last_step_; }
  void note_time(double seconds) { out_of_time_ = max_time_ && seconds >= *max_time_; }
  bool out_of_time() const { return out_of_time_; }

  // The signal that interrupted the run; 0: none. A late signal came after the last step, or while
  // the state was saved: it interrupts the work that follows.
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
