#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/summary.h"

namespace capstan {

std::string rank_table(const RunSummary& run) {
  if (run.ranks.size() < 2) return "";
  const auto least = std::min_element(
      run.ranks.begin(), run.ranks.end(),
      [](const RankUse& a, const RankUse& b) { return a.waited_seconds < b.waited_seconds; });
  std::string text =
      fmt::format("  {:<6}{:>9}{:>15}{:>10}{:>12}{:>12}{:>10}  {}\n", "rank", "compute",
                  "communication", "waiting", "planned", "measured", "tok/s", "host");
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankUse& use = run.ranks[r];
    const auto bytes = [](int64_t n) { return format_bytes(static_cast<double>(n)); };
    text += fmt::format("  {:<6}{:>7.2f} s{:>13.2f} s{:>8.2f} s{:>12}{:>12}{:>10.1f}  {}\n", r,
                        use.seconds - use.waited_seconds, least->waited_seconds,
                        use.waited_seconds - least->waited_seconds, bytes(use.planned_bytes),
                        bytes(use.measured_bytes),
                        use.seconds > 0 ? static_cast<double>(use.tokens) / use.seconds : 0,
                        run.hosts[r]);
  }
  return text + fmt::format("  strategy {}; the slowest rank is {}: the others waited for it\n\n",
                            run.strategy, least - run.ranks.begin());
}

}  // namespace capstan
