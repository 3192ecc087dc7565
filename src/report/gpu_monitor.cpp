#include "report/gpu_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

// What the card had in use before this process used it: several runs in one process share it.
int64_t used_before(const GpuReading& now) {
  static const int64_t used = now.memory ? now.memory->used : 0;
  return used;
}

std::string bytes(int64_t n) {
  return format_bytes(static_cast<double>(n));
}

struct Row {
  std::string name, value, note;
};

std::vector<Row> rows(const GpuUse& u, int64_t planned, int64_t allocated) {
  const char* whose =
      u.by_process ? "as the card counts this process" : "the card's growth since its start";
  std::vector<Row> r = {{"planned", bytes(planned), ""},
                        {"allocated", bytes(allocated), ""},
                        {"process", bytes(u.peak_bytes), fmt::format("at most; {}", whose)},
                        {"after the setup", bytes(u.setup_bytes), ""},
                        {"CUDA context", bytes(u.context_bytes), "before the plan was allocated"}};
  // Kernels that were loaded and what libraries keep; the first of them come with the first ops.
  if (const int64_t rest = u.peak_bytes - u.context_bytes - allocated; rest > 0)
    r.push_back({"libraries", bytes(rest), "process less allocated and context"});
  if (u.card_bytes > 0)
    r.push_back({"card", bytes(u.card_peak_bytes),
                 fmt::format("in use by all, of {}", bytes(u.card_bytes))});
  if (u.readings == 0) return r;
  r.push_back({"busy", fmt::format("{:.0f} %", 100 * u.mean_busy),
               fmt::format("a kernel was running; {} readings", u.readings)});
  if (u.most_watts > 0)
    r.push_back({"power", fmt::format("{:.0f} W", u.mean_watts),
                 fmt::format("at most {:.0f} W", u.most_watts)});
  if (u.most_celsius > 0)
    r.push_back({"temperature", fmt::format("{} °C", u.most_celsius), "at most"});
  return r;
}

}  // namespace

GpuMonitor::GpuMonitor(Device device) {
  if (device != Device::cuda) return;
  try {
    const auto gpu = cuda_facts();
    auto nvml = std::make_unique<Nvml>();
    const auto card = gpu ? nvml->find(gpu->bus_id) : std::nullopt;
    if (!card) return;
    nvml_ = std::move(nvml);
    card_ = *card;
  } catch (const Error&) {
    return;  // a GPU that cannot be used: the run says so itself
  }
  others_ = used_before(nvml_->read(card_));
}

GpuMonitor::GpuMonitor(std::unique_ptr<Nvml> nvml, int card) : nvml_(std::move(nvml)), card_(card) {
  if (const auto memory = nvml_->read(card_).memory) others_ = memory->used;
}

int64_t GpuMonitor::bytes_of(const GpuReading& r) {
  if (r.process_bytes) {
    use_.by_process = true;
    return *r.process_bytes;
  }
  return r.memory ? std::max<int64_t>(0, r.memory->used - others_) : 0;
}

GpuReading GpuMonitor::read() {
  GpuReading r = nvml_->read(card_);
  use_.peak_bytes = std::max(use_.peak_bytes, bytes_of(r));
  if (r.memory) {
    use_.card_bytes = r.memory->total;
    use_.card_peak_bytes = std::max(use_.card_peak_bytes, r.memory->used);
  }
  return r;
}

int64_t GpuMonitor::process_bytes() {
  return nvml_ ? bytes_of(read()) : 0;
}

void GpuMonitor::setup_done() {
  use_.setup_bytes = process_bytes();
}

void GpuMonitor::sample() {
  const auto now = std::chrono::steady_clock::now();
  if (!nvml_ || now < next_) return;
  next_ = now + std::chrono::seconds(1);
  const GpuReading r = read();
  ++use_.readings;
  busy_sum_ += r.busy.value_or(0);
  watts_sum_ += r.watts.value_or(0);
  use_.most_watts = std::max(use_.most_watts, r.watts.value_or(0));
  use_.most_celsius = std::max(use_.most_celsius, r.celsius.value_or(0));
}

std::optional<GpuUse> GpuMonitor::use(int64_t context_bytes) const {
  if (!nvml_) return std::nullopt;
  GpuUse u = use_;
  u.context_bytes = context_bytes;
  const auto n = static_cast<double>(std::max<int64_t>(1, u.readings));
  u.mean_busy = busy_sum_ / n;
  u.mean_watts = watts_sum_ / n;
  return u;
}

std::string gpu_table(const GpuUse& use, int64_t planned, int64_t allocated) {
  std::string s = "  GPU\n";
  for (const Row& r : rows(use, planned, allocated))
    s += fmt::format("  {:<16}{:>10}{}\n", r.name, r.value,
                     r.note.empty() ? "" : fmt::format("   ({})", r.note));
  return s;
}

std::string gpu_html(const GpuUse& use, int64_t planned, int64_t allocated) {
  std::string s = "<table><tbody>\n";
  for (const Row& r : rows(use, planned, allocated))
    s += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", r.name, r.value, r.note);
  return s + "</tbody></table>\n";
}

}  // namespace capstan
