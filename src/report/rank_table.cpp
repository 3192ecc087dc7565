#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/summary.h"

namespace capstan {

std::vector<RankTime> rank_times(const RunSummary& run) {
  double least = run.ranks.empty() ? 0 : run.ranks[0].waited_seconds;
  for (const RankUse& use : run.ranks) least = std::min(least, use.waited_seconds);
  std::vector<RankTime> times;
  for (const RankUse& use : run.ranks)
    times.push_back(
        {.compute = use.seconds - use.waited_seconds,
         .communication = least,
         .waiting = use.waited_seconds - least,
         .tokens_per_second = use.seconds > 0 ? static_cast<double>(use.tokens) / use.seconds : 0});
  return times;
}

size_t slowest_rank(const RunSummary& run) {
  const auto less = [](const RankUse& a, const RankUse& b) {
    return a.waited_seconds < b.waited_seconds;
  };
  return static_cast<size_t>(std::min_element(run.ranks.begin(), run.ranks.end(), less) -
                             run.ranks.begin());
}

std::string rank_table(const RunSummary& run) {
  if (run.ranks.size() < 2) return "";
  std::string text =
      fmt::format("  {:<6}{:>9}{:>15}{:>10}{:>12}{:>12}{:>10}  {}\n", "rank", "compute",
                  "communication", "waiting", "planned", "measured", "tok/s", "host");
  const std::vector<RankTime> times = rank_times(run);
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankTime& t = times[r];
    text +=
        fmt::format("  {:<6}{:>7.2f} s{:>13.2f} s{:>8.2f} s{:>12}{:>12}{:>10.1f}  {}\n", r,
                    t.compute, t.communication, t.waiting, format_bytes(run.ranks[r].planned_bytes),
                    format_bytes(run.ranks[r].measured_bytes), t.tokens_per_second, run.hosts[r]);
  }
  return text + fmt::format("  strategy {}; the slowest rank is {}: the others waited for it\n\n",
                            run.strategy, slowest_rank(run));
}

}  // namespace capstan
