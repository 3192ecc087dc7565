#pragma once

#include <chrono>
#include <cstdint>

#include "base/stop_token.h"
#include "run/team.h"

namespace capstan {

// Whether a signal ends work of many parts that all ranks do together, such as a validation. All
// ranks get the same answer after the same part. They ask each other about four times a second:
// after how many parts follows from the time that the slowest rank took for the last ones.
class AgreedStop {
 public:
  AgreedStop(Team& team, StopToken stop) : team_(team), stop_(std::move(stop)) {}

  // After each part, on every rank: the signal of any rank, or 0.
  int after_part();
  // The last answer.
  int signal() const { return signal_; }

 private:
  using Clock = std::chrono::steady_clock;

  Team& team_;
  StopToken stop_;
  int64_t parts_ = 0, until_next_ = 1;
  Clock::time_point asked_ = Clock::now();
  int signal_ = 0;
};

}  // namespace capstan
