#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/nvml.h"

namespace capstan {

// How busy this machine is, under the names of MLflow's own client: "cpu_utilization_percentage",
// "system_memory_usage_megabytes", "gpu_0_utilization_percentage" … What is unknown is absent.
class MachineLoad {
 public:
  MachineLoad() : before_(ticks()) {}
  // The processors' share is that since the last call.
  std::vector<std::pair<std::string, double>> now();

 private:
  struct Ticks {
    double total = 0, idle = 0;  // of all processors
  };
  static Ticks ticks();

  Ticks before_;
  Nvml cards_;
};

}  // namespace capstan
