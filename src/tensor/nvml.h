#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What NVIDIA's cards say of themselves, through the management library that comes with the driver.
// It is opened when it is asked for: a program starts, and can be built, where there is none.
namespace capstan {

struct GpuMemory {
  int64_t total = 0, free = 0, used = 0;  // bytes; used by all, with what the driver keeps
};

struct GpuProcess {
  uint32_t pid = 0;
  std::optional<int64_t> bytes;
};

struct PcieLink {
  int generation = 0, width = 0;
};

// Why a card's clocks are below what they could be.
struct Throttling {
  bool idle = false;
  bool power = false;     // held at the power limit by the driver
  bool thermal = false;   // too hot
  bool hardware = false;  // slowed down by the board: heat, or power that it does not get
  bool settings = false;  // clocks that somebody has set
};

// What a card does not tell is absent.
struct GpuFacts {
  std::string name, bus_id;
  std::optional<std::pair<int, int>> capability;  // 9.0
  std::optional<GpuMemory> memory;
  std::vector<GpuProcess> processes;  // that compute, as far as this process may see them
  std::optional<double> watts, watts_limit, watts_default;
  std::optional<int> celsius, celsius_slowdown;
  std::optional<int64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<int> mhz_most;                            // of its multiprocessors
  std::optional<Throttling> throttling;
  std::optional<PcieLink> pcie, pcie_most;
};

// The few of them that change during a run.
struct GpuReading {
  std::optional<GpuMemory> memory;
  std::optional<int64_t> process_bytes;  // of this process
  std::optional<double> busy;            // share of the last moment in which a kernel ran
  std::optional<double> watts;           // mean of the last second on some cards, else now
  std::optional<double> watts_limit;     // that the driver enforces, by whomever it was set
  std::optional<int> celsius;
  std::optional<int> mhz;  // of the multiprocessors
  std::optional<Throttling> throttling;
  std::optional<double> joules;  // that the card has used since the driver was loaded
};

// Cards are numbered as the driver does, which need not be CUDA's order: find() takes the address
// on the bus. Nothing here throws, but std::bad_alloc. Belongs to one thread.
class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool present() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }  // "" where it is present

  // Where it is not present: empty, 0, none.
  std::string driver_version() const;  // "580.65.06"
  int cuda_version() const;            // the newest that the driver can: 13000 is 13.0
  int count() const;
  std::optional<int> find(const std::string& bus_id) const;  // "0000:19:00.0"
  GpuFacts facts(int card) const;
  // The list of processes takes a while, and heap: process_bytes only where it is asked for.
  GpuReading read(int card, bool with_processes = true) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string why_not_;
};

}  // namespace capstan
