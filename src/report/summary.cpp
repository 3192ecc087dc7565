#include "report/summary.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "report/bar.h"

namespace capstan {
namespace {

constexpr const char* kHost = "host memory";

std::string part_of_plan(const char* title, const MemoryPlan& plan, std::string_view where) {
  constexpr int kBar = 40;
  std::string s = fmt::format("  {:<14}{:>12}\n", title, "planned");
  const auto row = [&](std::string_view name, int64_t n) {
    const double share =
        static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, plan.total_bytes));
    s += fmt::format("  {:<14}{:>12}  {} {:>3.0f}%\n", name, format_bytes(n),
                     block_bar(share, kBar), 100 * share);
  };
  for (int i = 0; i < kCategories; ++i) {
    const int64_t n = plan.at_peak[static_cast<size_t>(i)];
    if (n > 0) row(name_of(static_cast<Category>(i)), n);
  }
  if (const int64_t lost = plan.total_bytes - plan.peak_bytes; lost > 0) row("packing", lost);
  return s + fmt::format("  {:<14}{:>12}{}\n", "total", format_bytes(plan.total_bytes), where);
}

std::string peak_note(const MemoryPlan& plan) {
  constexpr size_t kRoom = 80 - 28;  // next to the name and the bytes
  std::string where =
      fmt::format("   (peak at '{}' in the phase '{}')", plan.peak_buffer, plan.peak_phase);
  if (where.size() > kRoom) where = fmt::format("   (peak in the phase '{}')", plan.peak_phase);
  return where.substr(0, kRoom);
}

std::string part_of_use(const char* title, const MemoryUse& use) {
  std::string s = fmt::format("  {:<14}{:>12}{:>12}\n", title, "planned", "measured");
  for (int i = 0; i < kCategories; ++i) {
    const auto c = static_cast<size_t>(i);
    if (use.planned[c] > 0 || use.measured[c] > 0)
      s += fmt::format("  {:<14}{:>12}{:>12}\n", name_of(static_cast<Category>(i)),
                       format_bytes(use.planned[c]), format_bytes(use.measured[c]));
  }
  return s + fmt::format("  {:<14}{:>12}{:>12}   (one allocation)\n", "total",
                         format_bytes(use.planned_bytes), format_bytes(use.measured_bytes));
}

}  // namespace

int64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

std::string plan_table(const RunPlan& plan) {
  std::string s = part_of_plan("memory", plan.device, peak_note(plan.device));
  if (plan.host.total_bytes > 0)
    s += part_of_plan(kHost, plan.host, "   (pinned; the GPU reads it over the bus)");
  return s;
}

MemoryUse memory_use(const MemoryPlan& plan, const Arena& arena) {
  return {.planned_bytes = plan.total_bytes,
          .measured_bytes = arena.allocated_bytes(),
          .planned = plan.highest,
          .measured = arena.highest()};
}

std::string memory_table(const MemoryUse& device, const MemoryUse& host) {
  std::string s = part_of_use("memory", device);
  if (host.planned_bytes > 0) s += part_of_use(kHost, host);
  return s + fmt::format("  {:<14}{:>12}{:>12}   (with program and data)\n", "process", "",
                         format_bytes(peak_resident_bytes()));
}

std::vector<OpTotal> longest_ops(const Queue& q, int rows) {
  std::vector<OpTotal> totals;
  for (const OpTotal& t : q.totals())
    if (t.calls > 0) totals.push_back(t);
  std::sort(totals.begin(), totals.end(),
            [](const OpTotal& a, const OpTotal& b) { return a.seconds > b.seconds; });
  totals.resize(std::min(totals.size(), static_cast<size_t>(rows)));
  return totals;
}

std::string op_table(const Queue& q, int rows) {
  const double all = std::max(q.seconds(), 1e-12);
  std::string s = fmt::format("  {:<24}{:>8}{:>9}{:>10}{:>11}{:>9}\n", "op", "calls", "share",
                              "time", "GFLOP/s", "GB/s");
  for (const OpTotal& t : longest_ops(q, rows)) {
    const double seconds = std::max(t.seconds, 1e-12);
    s += fmt::format("  {:<24}{:>8}{:>8.1f}%{:>10}{:>11.1f}{:>9.1f}\n", t.op, t.calls,
                     100 * t.seconds / all, format_duration(t.seconds),
                     t.cost.flops / seconds / 1e9, t.cost.bytes / seconds / 1e9);
  }
  return s;
}

}  // namespace capstan
