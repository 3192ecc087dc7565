#include "report/gpu_monitor.h"

#include <algorithm>

#include "base/error.h"

namespace capstan {
namespace {

template <class T>
void raise(std::optional<T>& most, const std::optional<T>& value) {
  if (value) most = std::max(*value, most.value_or(*value));
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
    return;  // an unusable GPU: the run reports it itself
  }
  begin();
}

GpuMonitor::GpuMonitor(std::unique_ptr<Nvml> nvml, int card, Duration between)
    : nvml_(std::move(nvml)), card_(card), between_(between) {
  begin();
}

void GpuMonitor::begin() {
  if (const auto memory = nvml_->read(card_).memory) others_ = memory->used;
  use_.mhz_most = nvml_->facts(card_).mhz_most;
}

void GpuMonitor::Mean::add(std::optional<double> value) {
  if (!value) return;
  sum += *value;
  ++count;
}

std::optional<double> GpuMonitor::Mean::value() const {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

int64_t GpuMonitor::bytes_of(const GpuReading& r) {
  if (r.process_bytes) {
    use_.by_process = true;
    return *r.process_bytes;
  }
  return r.memory ? std::max<int64_t>(0, r.memory->used - others_) : 0;
}

GpuReading GpuMonitor::read(bool with_processes) {
  GpuReading r = nvml_->read(card_, with_processes);
  if (with_processes) use_.peak_bytes = std::max(use_.peak_bytes, bytes_of(r));
  if (r.memory) {
    use_.card_bytes = r.memory->total;
    use_.card_peak_bytes = std::max(use_.card_peak_bytes, r.memory->used);
  }
  return r;
}

int64_t GpuMonitor::process_bytes() {
  return nvml_ ? bytes_of(read(true)) : 0;
}

void GpuMonitor::setup_done() {
  if (!nvml_) return;
  const GpuReading r = read(true);
  use_.setup_bytes = bytes_of(r);
  joules_at_setup_ = r.joules;
}

void GpuMonitor::add_holds(const Throttling& now) {
  by_power_.add(now.power);
  by_heat_.add(now.thermal);
  by_board_.add(now.hardware && !now.thermal);
  by_settings_.add(now.settings);
}

void GpuMonitor::sample() {
  const auto now = std::chrono::steady_clock::now();
  if (!nvml_ || now < next_) return;
  next_ = now + between_;
  const GpuReading r = read(false);
  ++use_.readings;
  busy_.add(r.busy);
  mhz_.add(r.mhz);
  if (r.throttling) add_holds(*r.throttling);
  watts_.add(r.watts);
  raise(use_.most_watts, r.watts);
  if (r.watts_limit) use_.watts_limit = r.watts_limit;
  raise(use_.most_celsius, r.celsius);
}

void GpuMonitor::training_done() {
  if (!nvml_) return;
  const GpuReading r = read(true);
  if (r.joules && joules_at_setup_) use_.joules = *r.joules - *joules_at_setup_;
}

std::optional<GpuUse> GpuMonitor::use(int64_t context_bytes) const {
  if (!nvml_) return std::nullopt;
  GpuUse u = use_;
  u.context_bytes = context_bytes;
  u.mean_busy = busy_.value();
  u.mean_mhz = mhz_.value();
  u.mean_watts = watts_.value();
  if (const auto power = by_power_.value())
    u.holds = ClockHolds{.power = *power,
                         .heat = *by_heat_.value(),
                         .board = *by_board_.value(),
                         .settings = *by_settings_.value()};
  return u;
}

}  // namespace capstan
