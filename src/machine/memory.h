#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/memory_plan.h"

namespace capstan {

// Memory that the GPU, or this machine, or the control group that this process runs in (a
// container, a batch job), or its own limits (ulimit -v, -d) could give to a run now, in bytes. Of
// a GPU's free memory some is left to the driver, for kernels when they are first used and for
// recorded graphs; of a process's own, some to threads and the buffers of products.
int64_t available_memory(Device device = Device::cpu);

// About what of all the memory of a GPU that is not here CUDA takes: for its context, and what is
// left to the driver.
int64_t left_to_cuda();

// Bytes that a run may take in each memory space. For a CPU there is one, `device`.
struct Room {
  int64_t device = 0;
  int64_t host = INT64_MAX;  // beside a GPU; INT64_MAX: nobody says how much there is
};
// What there is now, here.
Room room_for(Device device);
bool fits(const RunPlan& plan, const Room& room);

}  // namespace capstan
