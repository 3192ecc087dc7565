#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/memory_plan.h"

namespace capstan {

// Bytes that a run can allocate now on the GPU or on this machine, within the limits of the control
// group (a container, a batch job) and of the process (ulimit -v, -d). Reserves part of a GPU's
// free memory for the driver (kernels loaded on first use, recorded graphs), and part of a
// process's for threads and BLAS buffers.
int64_t available_memory(Device device = Device::cpu);

// About how much memory CUDA takes on a GPU that is not in this machine: its context and the
// reserve for the driver.
int64_t left_to_cuda();

// Bytes that a run may allocate in each memory space. A CPU has one, `device`.
struct Room {
  int64_t device = 0;
  int64_t host = INT64_MAX;  // next to a GPU; INT64_MAX: unknown, so unlimited
};
// What is available here and now.
Room room_for(Device device);
bool fits(const RunPlan& plan, const Room& room);

}  // namespace capstan
