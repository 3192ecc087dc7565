#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "base/units.h"
#include "report/gpu_monitor.h"

namespace capstan {
namespace {

struct Row {
  std::string name, value, note;
};

std::string percent(double share) {
  return share > 0 && share < 0.01 ? "under 1 %" : fmt::format("{:.0f} %", 100 * share);
}

// In watt-hours, as electricity is metered.
std::string energy(double joules) {
  const double hours = joules / 3600;
  if (joules < 3599.5) return fmt::format("{:.0f} J", joules);
  if (hours < 999.5) return fmt::format("{:.{}f} Wh", hours, hours < 99.95 ? 1 : 0);
  return fmt::format("{:.1f} kWh", hours / 1000);
}

// "limited by power in 97 % of readings, by temperature in 3 %"
std::string limited(const ClockHolds& h) {
  std::vector<std::string> parts;
  const auto add = [&](const char* by, double share) {
    if (share > 0)
      parts.push_back(
          fmt::format("by {} in {}{}", by, percent(share), parts.empty() ? " of readings" : ""));
  };
  add("power", h.power);
  add("temperature", h.heat);
  add("the board", h.board);
  add("clock settings", h.settings);
  return parts.empty() ? "not limited" : fmt::format("limited {}", fmt::join(parts, ", "));
}

Row clock(const GpuUse& u) {
  std::vector<std::string> notes;
  if (u.mhz_most) notes.push_back(fmt::format("of {} at most", format_grouped(*u.mhz_most)));
  if (u.holds) notes.push_back(limited(*u.holds));
  return {"clock", fmt::format("{} MHz", format_grouped(std::llround(*u.mean_mhz))),
          fmt::format("{}", fmt::join(notes, "; "))};
}

Row power(const GpuUse& u) {
  std::string note = fmt::format("up to {:.0f} W", u.most_watts.value_or(*u.mean_watts));
  if (u.watts_limit) note += fmt::format(", limit {:.0f} W", *u.watts_limit);
  return {"power", fmt::format("{:.0f} W", *u.mean_watts), note};
}

std::vector<Row> memory(const GpuUse& u, int64_t planned, int64_t allocated) {
  const char* source =
      u.by_process ? "measured for this process" : "the card's growth since the process began";
  std::vector<Row> r = {
      {"planned", format_bytes(planned), ""},
      {"allocated", format_bytes(allocated), ""},
      {"process", format_bytes(u.peak_bytes), fmt::format("peak; {}", source)},
      {"after setup", format_bytes(u.setup_bytes), ""},
      {"CUDA context", format_bytes(u.context_bytes), "before the plan was allocated"}};
  // Loaded kernels and library workspaces; they appear with the first ops.
  if (const int64_t rest = u.peak_bytes - u.context_bytes - allocated; rest > 0)
    r.push_back({"libraries", format_bytes(rest), "process minus allocation and context"});
  if (u.card_bytes > 0)
    r.push_back({"card", format_bytes(u.card_peak_bytes),
                 fmt::format("used by all processes, of {}", format_bytes(u.card_bytes))});
  return r;
}

void add_work(std::vector<Row>& r, const GpuUse& u) {
  if (u.mean_busy)
    r.push_back({"busy", fmt::format("{:.0f} %", 100 * *u.mean_busy),
                 fmt::format("a kernel was running; {}", count(u.readings, "reading"))});
  if (u.mean_mhz) r.push_back(clock(u));
  if (u.mean_watts) r.push_back(power(u));
  // The card updates its counter some ten times a second; a run may end before the first update.
  if (u.joules.value_or(0) > 0)
    r.push_back({"energy", energy(*u.joules), "of the whole card, during training"});
  if (u.most_celsius) r.push_back({"temperature", fmt::format("{} °C", *u.most_celsius), "peak"});
}

std::vector<Row> rows(const GpuUse& u, int64_t planned, int64_t allocated) {
  std::vector<Row> r = memory(u, planned, allocated);
  if (u.readings > 0) add_work(r, u);
  return r;
}

}  // namespace

std::string gpu_table(const GpuUse& use, int64_t planned, int64_t allocated) {
  std::string s = "  GPU\n";
  for (const Row& r : rows(use, planned, allocated))
    s += fmt::format("  {:<16}{:>10}{}\n", r.name, r.value,
                     r.note.empty() ? "" : fmt::format("   ({})", r.note));
  return s;
}

std::string gpu_html(const GpuUse& use, int64_t planned, int64_t allocated) {
  std::string s = "<div class=\"scroll\"><table class=\"notes\"><tbody>\n";
  for (const Row& r : rows(use, planned, allocated))
    s += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", r.name, r.value, r.note);
  return s + "</tbody></table></div>\n";
}

}  // namespace capstan
