#include "run/agreed_stop.h"

#include <algorithm>

namespace capstan {

int AgreedStop::after_part() {
  if (team_.size() == 1) return signal_ = stop_.signal();
  if (++parts_ < until_next_ || signal_ != 0) return signal_;
  struct Answer {
    int signal;
    double seconds;  // of a part
  };
  const std::chrono::duration<double> since = Clock::now() - asked_;
  const Answer mine{stop_.signal(), since.count() / static_cast<double>(parts_)};
  double slowest = 1e-6;
  for (const Answer& a : team_.gather(mine)) {
    if (signal_ == 0) signal_ = a.signal;
    slowest = std::max(slowest, a.seconds);
  }
  // At most twice as many as the last time: the first parts may be faster than the rest.
  constexpr double kSeconds = 0.25;
  until_next_ = std::clamp(static_cast<int64_t>(kSeconds / slowest), int64_t{1}, 2 * until_next_);
  parts_ = 0;
  asked_ = Clock::now();
  return signal_;
}

}  // namespace capstan
