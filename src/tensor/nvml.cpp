#include "tensor/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace capstan {
namespace {

// The library's ABI. A function never changes under its name; new versions get new names.
using Handle = struct nvmlDevice_st*;
constexpr int kSuccess = 0, kInsufficientSize = 7;
constexpr unsigned long long kNoValue = ~0ULL;

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

constexpr int kGpuSensor = 0;        // of nvmlTemperatureSensors_t
constexpr int kSlowdown = 1;         // of nvmlTemperatureThresholds_t
constexpr int kMultiprocessors = 1;  // of nvmlClockType_t

// Bits of nvmlDeviceGetCurrentClocksEventReasons.
constexpr unsigned long long kIdle = 0x1, kApplicationClocks = 0x2, kPowerCap = 0x4,
                             kHardware = 0x8, kThermal = 0x20, kHardwareThermal = 0x40,
                             kPowerBrake = 0x80;

template <class... Args>
using Call = int (*)(Args...);

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
  template <class... Args>
  Call<Args...> find(const char* name) const {
    return reinterpret_cast<Call<Args...>>(dlsym(handle, name));
  }
  // Whether the function exists and succeeds.
  template <class... Args>
  bool call(const char* name, Args... args) const {
    const auto function = find<Args...>(name);
    return function != nullptr && function(args...) == kSuccess;
  }
  // The value that a function writes to its last argument.
  template <class Value, class... Args>
  std::optional<Value> get(const char* name, Args... args) const {
    Value value{};
    if (!call(name, args..., &value)) return std::nullopt;
    return value;
  }
  std::string text(const char* name, auto... args) const {
    std::array<char, 128> buffer{};
    if (!call(name, args..., buffer.data(), static_cast<unsigned>(buffer.size()))) return "";
    buffer.back() = 0;
    return buffer.data();
  }

  Handle card(int index) const {
    return get<Handle>("nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(index))
        .value_or(nullptr);
  }
  std::optional<GpuMemory> memory(Handle card) const {
    MemoryV2 m{};
    m.version = static_cast<unsigned>(sizeof m) | 2u << 24;
    if (!call("nvmlDeviceGetMemoryInfo_v2", card, &m)) return std::nullopt;
    return GpuMemory{static_cast<int64_t>(m.total), static_cast<int64_t>(m.free),
                     static_cast<int64_t>(m.used)};
  }
  std::vector<GpuProcess> processes(Handle card) const {
    const char* name = "nvmlDeviceGetComputeRunningProcesses_v3";
    const auto list = find<Handle, unsigned*, ProcessV2*>(name);
    if (list == nullptr) return {};
    std::vector<ProcessV2> found(64);
    auto count = static_cast<unsigned>(found.size());
    int status = list(card, &count, found.data());
    if (status == kInsufficientSize) {
      found.resize(count + 16);  // more processes may start meanwhile
      count = static_cast<unsigned>(found.size());
      status = list(card, &count, found.data());
    }
    std::vector<GpuProcess> result;
    for (unsigned i = 0; status == kSuccess && i < count && i < found.size(); ++i) {
      GpuProcess p{found[i].pid, std::nullopt};
      if (found[i].used != kNoValue) p.bytes = static_cast<int64_t>(found[i].used);
      result.push_back(p);
    }
    return result;
  }
  std::optional<double> watts(const char* name, Handle card) const {
    const auto milliwatts = get<unsigned>(name, card);
    if (!milliwatts) return std::nullopt;
    return *milliwatts / 1000.0;
  }
  // For a function with several values: one for each `which`.
  std::optional<int> number(const char* name, Handle card, int which) const {
    const auto found = get<unsigned>(name, card, which);
    if (!found) return std::nullopt;
    return static_cast<int>(*found);
  }
  std::optional<double> joules(Handle card) const {
    const auto millijoules = get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", card);
    if (!millijoules) return std::nullopt;
    return static_cast<double>(*millijoules) / 1000;
  }
  std::optional<int64_t> ecc_errors(Handle card, int uncorrected) const {
    constexpr int kVolatile = 0;
    const auto n =
        get<unsigned long long>("nvmlDeviceGetTotalEccErrors", card, uncorrected, kVolatile);
    if (!n) return std::nullopt;
    return static_cast<int64_t>(*n);
  }
  std::optional<PcieLink> link(Handle card, const char* generation, const char* width) const {
    const auto g = get<unsigned>(generation, card), w = get<unsigned>(width, card);
    if (!g || !w) return std::nullopt;
    return PcieLink{static_cast<int>(*g), static_cast<int>(*w)};
  }
  std::optional<Throttling> throttling(Handle card) const {
    auto bits = get<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons", card);
    if (!bits)  // its name in drivers before 535
      bits = get<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", card);
    if (!bits) return std::nullopt;
    const auto any = [&](unsigned long long of) { return (*bits & of) != 0; };
    return Throttling{.idle = any(kIdle),
                      .power = any(kPowerCap),
                      .thermal = any(kThermal | kHardwareThermal),
                      .hardware = any(kHardware | kPowerBrake),
                      .settings = any(kApplicationClocks)};
  }
};

Nvml::Nvml(const char* library) {
  auto opened = std::make_unique<Library>();
  opened->handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened->handle == nullptr) {
    const char* why = dlerror();
    why_not_ = why != nullptr ? why : "cannot be opened";
    return;
  }
  const auto start = opened->find<>("nvmlInit_v2");
  const int status = start != nullptr ? start() : -1;
  if (status != kSuccess) {
    const auto words =
        reinterpret_cast<const char* (*)(int)>(dlsym(opened->handle, "nvmlErrorString"));
    why_not_ = start == nullptr   ? fmt::format("{}: has no nvmlInit_v2", library)
               : words != nullptr ? words(status)
                                  : fmt::format("{}: error {}", library, status);
    return;
  }
  library_ = std::move(opened);
}

Nvml::~Nvml() {
  if (library_) library_->call("nvmlShutdown");
}

std::string Nvml::driver_version() const {
  return library_ ? library_->text("nvmlSystemGetDriverVersion") : "";
}

int Nvml::cuda_version() const {
  return library_ ? library_->get<int>("nvmlSystemGetCudaDriverVersion_v2").value_or(0) : 0;
}

int Nvml::count() const {
  if (!library_) return 0;
  return static_cast<int>(library_->get<unsigned>("nvmlDeviceGetCount_v2").value_or(0));
}

std::optional<int> Nvml::find(const std::string& bus_id) const {
  if (!library_) return std::nullopt;
  const auto card = library_->get<Handle>("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str());
  const auto index = card ? library_->get<unsigned>("nvmlDeviceGetIndex", *card) : std::nullopt;
  if (!index) return std::nullopt;
  return static_cast<int>(*index);
}

GpuFacts Nvml::facts(int index) const {
  GpuFacts f;
  const Handle card = library_ ? library_->card(index) : nullptr;
  if (card == nullptr) return f;
  const Library& l = *library_;
  f.name = l.text("nvmlDeviceGetName", card);
  if (const auto pci = l.get<PciInfo>("nvmlDeviceGetPciInfo_v3", card)) f.bus_id = pci->id;
  if (int major = 0, minor = 0; l.call("nvmlDeviceGetCudaComputeCapability", card, &major, &minor))
    f.capability = {major, minor};
  f.memory = l.memory(card);
  f.processes = l.processes(card);
  f.watts = l.watts("nvmlDeviceGetPowerUsage", card);
  f.watts_limit = l.watts("nvmlDeviceGetEnforcedPowerLimit", card);
  f.watts_default = l.watts("nvmlDeviceGetPowerManagementDefaultLimit", card);
  f.celsius = l.number("nvmlDeviceGetTemperature", card, kGpuSensor);
  f.celsius_slowdown = l.number("nvmlDeviceGetTemperatureThreshold", card, kSlowdown);
  f.ecc_corrected = l.ecc_errors(card, 0);
  f.ecc_uncorrected = l.ecc_errors(card, 1);
  f.mhz_most = l.number("nvmlDeviceGetMaxClockInfo", card, kMultiprocessors);
  f.throttling = l.throttling(card);
  f.pcie = l.link(card, "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth");
  f.pcie_most = l.link(card, "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth");
  return f;
}

GpuReading Nvml::read(int index, bool with_processes) const {
  GpuReading r;
  const Handle card = library_ ? library_->card(index) : nullptr;
  if (card == nullptr) return r;
  const Library& l = *library_;
  // These first and close together: they follow the load.
  r.mhz = l.number("nvmlDeviceGetClockInfo", card, kMultiprocessors);
  r.throttling = l.throttling(card);
  r.watts = l.watts("nvmlDeviceGetPowerUsage", card);
  r.joules = l.joules(card);
  r.watts_limit = l.watts("nvmlDeviceGetEnforcedPowerLimit", card);
  if (const auto u = l.get<Utilization>("nvmlDeviceGetUtilizationRates", card))
    r.busy = u->gpu / 100.0;
  r.celsius = l.number("nvmlDeviceGetTemperature", card, kGpuSensor);
  r.memory = l.memory(card);
  if (!with_processes) return r;
  for (const GpuProcess& p : l.processes(card))
    if (p.pid == static_cast<uint32_t>(getpid())) r.process_bytes = p.bytes;
  return r;
}

}  // namespace capstan
