#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Status of NVIDIA cards, from the management library (NVML) of the driver. It is loaded on
// request, so the program builds and starts without it.
namespace capstan {

struct GpuMemory {
  int64_t total = 0, free = 0,
          used = 0;  // bytes; used by all processes, including the driver's reserve
};

struct GpuProcess {
  uint32_t pid = 0;
  std::optional<int64_t> bytes;
};

struct PcieLink {
  int generation = 0, width = 0;
};

// Why a card's clocks are below their maximum.
struct Throttling {
  bool idle = false;
  bool power = false;     // at the power limit
  bool thermal = false;   // too hot
  bool hardware = false;  // slowed down by the board: temperature or insufficient power
  bool settings = false;  // clocks set by a user
};

// Values that a card does not report are absent.
struct GpuFacts {
  std::string name, bus_id;
  std::optional<std::pair<int, int>> capability;  // 9.0
  std::optional<GpuMemory> memory;
  std::vector<GpuProcess> processes;  // compute processes, as far as this process can see them
  std::optional<double> watts, watts_limit, watts_default;
  std::optional<int> celsius, celsius_slowdown;
  std::optional<int64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<int> mhz_most;                            // SM clock
  std::optional<Throttling> throttling;
  std::optional<PcieLink> pcie, pcie_most;
};

// The few values that change during a run.
struct GpuReading {
  std::optional<GpuMemory> memory;
  std::optional<int64_t> process_bytes;  // of this process
  std::optional<double> busy;            // share of the recent sample period in which a kernel ran
  std::optional<double> watts;        // mean of the last second on some cards, else instantaneous
  std::optional<double> watts_limit;  // enforced by the driver, whoever set it
  std::optional<int> celsius;
  std::optional<int> mhz;  // SM clock
  std::optional<Throttling> throttling;
  std::optional<double> joules;  // energy of the card since the driver was loaded
};

// Cards are in the driver's order, which may differ from CUDA's: find() takes the bus address.
// Throws nothing but std::bad_alloc. Not thread safe.
class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool present() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }  // "" if it is present

  // Without the library: empty, 0, none.
  std::string driver_version() const;  // "580.65.06"
  int cuda_version() const;            // newest version that the driver supports: 13000 is 13.0
  int count() const;
  std::optional<int> find(const std::string& bus_id) const;  // "0000:19:00.0"
  GpuFacts facts(int card) const;
  // The list of processes takes time and heap memory: process_bytes only on request.
  GpuReading read(int card, bool with_processes = true) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string why_not_;
};

}  // namespace capstan
