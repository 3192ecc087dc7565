#include "bench/other_load.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/parallel.h"

namespace capstan {
namespace {

std::vector<int> own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> all;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return all;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) all.push_back(i);
  return all;
}

double ticks_per_second() {
  return static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<double> busy_now(std::span<const int> processors) {
  std::ifstream file("/proc/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return busy_seconds(text, processors, ticks_per_second());
}

// Of all threads of this process.
double own_seconds() {
  std::timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

std::optional<double> busy_seconds(std::string_view proc_stat, std::span<const int> processors,
                                   double ticks_per_second) {
  // user, nice, system, idle, iowait, irq, softirq, steal
  enum { idle = 3, iowait = 4, columns = 8 };
  if (processors.empty()) return std::nullopt;
  double busy = 0;
  size_t found = 0;
  std::istringstream lines{std::string(proc_stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    const bool own = std::any_of(processors.begin(), processors.end(),
                                 [&](int p) { return name.substr(3) == std::to_string(p); });
    if (!own) continue;
    std::array<double, columns> ticks{};
    for (double& t : ticks)
      if (!(words >> t)) return std::nullopt;
    for (int i = 0; i < columns; ++i)
      if (i != idle && i != iowait) busy += ticks[static_cast<size_t>(i)];
    ++found;
  }
  if (found < processors.size()) return std::nullopt;
  return busy / ticks_per_second;
}

OtherLoad::OtherLoad()
    : processors_(own_processors()),
      busy_(busy_now(processors_)),
      own_(own_seconds()),
      start_(std::chrono::steady_clock::now()) {}

std::optional<double> OtherLoad::processors() const {
  const auto busy = busy_now(processors_);
  if (!busy_ || !busy) return std::nullopt;
  // The system counts in ticks, and may be some of them off.
  constexpr double kTicksOff = 3;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  const double others = *busy - *busy_ - (own_seconds() - own_) - kTicksOff / ticks_per_second();
  if (wall.count() <= 0) return std::nullopt;
  const double idle = static_cast<double>(processors_.size()) - num_threads();
  return std::max(0.0, others / wall.count() - std::max(0.0, idle));
}

}  // namespace capstan
