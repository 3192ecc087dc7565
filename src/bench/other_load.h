#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

// How much of the processors of this process other programs take, which makes what is measured
// meanwhile take longer.
namespace capstan {

// Seconds of processor time that programs and the system had on these processors since it started,
// or that a hypervisor gave to others. `proc_stat`: the text of /proc/stat. None if it has no line
// for one of the processors.
std::optional<double> busy_seconds(std::string_view proc_stat, std::span<const int> processors,
                                   double ticks_per_second);

// Measures from its construction on.
class OtherLoad {
 public:
  OtherLoad();

  // How many processors other programs had on average, of those that this process may use, and
  // beyond those that its threads leave idle: 0.5 is half of one. None if the system does not say.
  std::optional<double> processors() const;

 private:
  std::vector<int> processors_;
  std::optional<double> busy_;
  double own_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace capstan
