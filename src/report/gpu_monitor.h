#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/nvml.h"

namespace capstan {

// Why the multiprocessors' clock was below what it could be: each the share of readings in which it
// was so. Several can hold at once.
struct ClockHolds {
  double power = 0;     // the power limit
  double heat = 0;      // the card was too hot
  double board = 0;     // the board slowed it down for another reason: power that it did not get
  double settings = 0;  // clocks that somebody has set
};

// How a run used its GPU, as the card itself counts it. What it does not tell is absent.
struct GpuUse {
  // Of this process: before its plan was allocated (the CUDA context), when everything was set up,
  // and at the most.
  int64_t context_bytes = 0, setup_bytes = 0, peak_bytes = 0;
  // The driver named this process; else they are what the card had more in use than when the
  // process began, in which others may have a part.
  bool by_process = false;
  int64_t card_peak_bytes = 0, card_bytes = 0;  // in use by all, and all there is
  int64_t readings = 0;                         // that the following are of; 0: none
  std::optional<double> mean_busy = {};         // share of the time in which a kernel ran
  std::optional<double> mean_mhz = {};          // of the multiprocessors
  std::optional<int> mhz_most = {};             // that the card can
  std::optional<ClockHolds> holds = {};
  std::optional<double> mean_watts = {}, most_watts = {};
  std::optional<double> watts_limit = {};  // as it was read last
  std::optional<double> joules = {};       // of the whole card, from setup_done to training_done
  std::optional<int> most_celsius = {};
};

// Asks the card of a run now and then, from the run's own thread. Where the run is not on a GPU, or
// the card does not tell, it does nothing, and there is no use to report. Nothing here throws, but
// std::bad_alloc.
class GpuMonitor {
 public:
  // To be made before the GPU is first used: what the card has in use then is others'.
  explicit GpuMonitor(Device device);
  using Duration = std::chrono::steady_clock::duration;
  GpuMonitor(std::unique_ptr<Nvml> nvml, int card,
             Duration between = std::chrono::seconds(1));  // for tests

  // Of this process, now; 0 where it is not known.
  int64_t process_bytes();

  void setup_done();
  // Takes a reading, unless the last one was less than a second ago. To be called while the GPU
  // works: clocks, and what holds them, are those of the moment. Takes no memory from the heap.
  void sample();
  void training_done();

  // `context_bytes`: process_bytes before the plan was allocated.
  std::optional<GpuUse> use(int64_t context_bytes) const;

 private:
  // Of the readings that tell.
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    void add(std::optional<double> value);
    std::optional<double> value() const;
  };

  GpuReading read(bool with_processes);
  int64_t bytes_of(const GpuReading& reading);
  void add_holds(const Throttling& now);

  std::unique_ptr<Nvml> nvml_;  // null: nothing to ask
  int card_ = 0;
  Duration between_ = std::chrono::seconds(1);
  int64_t others_ = 0;
  GpuUse use_;
  Mean busy_, watts_, mhz_, by_power_, by_heat_, by_board_, by_settings_;
  std::optional<double> joules_at_setup_;
  std::chrono::steady_clock::time_point next_ = {};
};

// Lines for the end of a run: what was planned and allocated, what the card counts for this
// process, the context's part of it, how hard the card worked and what held it back.
std::string gpu_table(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);
// The same as HTML.
std::string gpu_html(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);

}  // namespace capstan
