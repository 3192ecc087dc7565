#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/nvml.h"

namespace capstan {

// How a run used its GPU, as the card itself counts it.
struct GpuUse {
  // Of this process: before its plan was allocated (the CUDA context), when everything was set up,
  // and at the most.
  int64_t context_bytes = 0, setup_bytes = 0, peak_bytes = 0;
  // The driver named this process; else they are what the card had more in use than when the
  // process began, in which others may have a part.
  bool by_process = false;
  int64_t card_peak_bytes = 0, card_bytes = 0;  // in use by all, and all there is
  int64_t readings = 0;                         // that the following are of; 0: none
  double mean_busy = 0;                         // share of the time in which a kernel ran
  double mean_watts = 0, most_watts = 0;
  int most_celsius = 0;
};

// Asks the card of a run now and then, from the run's own thread. Where the run is not on a GPU, or
// the card does not tell, it does nothing, and there is no use to report. Nothing here throws, but
// std::bad_alloc.
class GpuMonitor {
 public:
  // To be made before the GPU is first used: what the card has in use then is others'.
  explicit GpuMonitor(Device device);
  GpuMonitor(std::unique_ptr<Nvml> nvml, int card);  // for tests

  // Of this process, now; 0 where it is not known.
  int64_t process_bytes();

  void setup_done();
  // Takes a reading, unless the last one was less than a second ago.
  void sample();

  // `context_bytes`: process_bytes before the plan was allocated.
  std::optional<GpuUse> use(int64_t context_bytes) const;

 private:
  GpuReading read();
  int64_t bytes_of(const GpuReading& reading);

  std::unique_ptr<Nvml> nvml_;  // null: nothing to ask
  int card_ = 0;
  int64_t others_ = 0;
  GpuUse use_;
  double busy_sum_ = 0, watts_sum_ = 0;
  std::chrono::steady_clock::time_point next_ = {};
};

// Lines for the end of a run: what was planned and allocated, what the card counts for this
// process, the context's part of it, and how hard the card worked.
std::string gpu_table(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);
// The same as HTML.
std::string gpu_html(const GpuUse& use, int64_t planned_bytes, int64_t allocated_bytes);

}  // namespace capstan
