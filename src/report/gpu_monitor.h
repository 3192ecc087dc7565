#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/nvml.h"

namespace capstan {

// What kept the SM clock below its maximum: for each reason, the share of readings in which it
// applied. Several may apply at once.
struct ClockHolds {
  double power = 0;     // power limit
  double heat = 0;      // temperature
  double board = 0;     // the board's own slowdown, such as a missing power supply
  double settings = 0;  // clocks that a user set
};

// How a run used its GPU, as measured by the card. Fields that the card does not report are absent.
struct GpuUse {
  // Memory of this process: before its plan was allocated (the CUDA context), after setup, and at
  // its peak.
  int64_t context_bytes = 0, setup_bytes = 0, peak_bytes = 0;
  // The driver reported this process; otherwise the numbers are the card's growth since the process
  // began, which may include other processes.
  bool by_process = false;
  int64_t card_peak_bytes = 0, card_bytes = 0;  // used by all processes, and in total
  int64_t readings = 0;                         // number of readings behind the following; 0: none
  std::optional<double> mean_busy = {};         // share of time in which a kernel ran
  std::optional<double> mean_mhz = {};          // SM clock
  std::optional<int> mhz_most = {};             // the card's maximum
  std::optional<ClockHolds> holds = {};
  std::optional<double> mean_watts = {}, most_watts = {};
  std::optional<double> watts_limit = {};  // last reading
  std::optional<double> joules = {};       // of the whole card, from setup_done to training_done
  std::optional<int> most_celsius = {};
};

// Samples the GPU of a run from the run's own thread. Does nothing if the run is not on a GPU or
// the card does not answer; then there is nothing to report. Throws nothing but std::bad_alloc.
class GpuMonitor {
 public:
  // Must be constructed before the GPU is first used: memory in use then belongs to others.
  explicit GpuMonitor(Device device);
  using Duration = std::chrono::steady_clock::duration;
  GpuMonitor(std::unique_ptr<Nvml> nvml, int card,
             Duration between = std::chrono::seconds(1));  // for tests

  // Memory of this process now; 0 if unknown.
  int64_t process_bytes();

  void setup_done();
  // Takes a reading, at most once per second. Call it while the GPU works: clocks and their limits
  // are instantaneous. Allocates no heap memory.
  void sample();
  void training_done();

  // `context_bytes`: process_bytes before the plan was allocated.
  std::optional<GpuUse> use(int64_t context_bytes) const;

 private:
  // Over the readings that succeeded.
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    void add(std::optional<double> value);
    std::optional<double> value() const;
  };

  void begin();
  GpuReading read(bool with_processes);
  int64_t bytes_of(const GpuReading& reading);
  void add_holds(const Throttling& now);

  std::unique_ptr<Nvml> nvml_;  // null: no card to sample
  int card_ = 0;
  Duration between_ = std::chrono::seconds(1);
  int64_t others_ = 0;  // memory in use on the card when this was constructed
  GpuUse use_;
  Mean busy_, watts_, mhz_, by_power_, by_heat_, by_board_, by_settings_;
  std::optional<double> joules_at_setup_;
  std::chrono::steady_clock::time_point next_ = {};
};

// Lines for the end of a run: planned and allocated memory, the card's count for this process, the
// context's share, GPU utilization, and what limited the clock.
std::string gpu_table(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);
// The same as HTML.
std::string gpu_html(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);

}  // namespace capstan
