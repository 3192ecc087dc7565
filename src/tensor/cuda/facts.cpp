#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.h"
#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/context.h"
#include "tensor/device.h"

namespace capstan::cuda {

std::pair<int, int> capability_of(int device) {
  std::pair<int, int> found, like;
  check(cudaDeviceGetAttribute(&found.first, cudaDevAttrComputeCapabilityMajor, device),
        "read the device's properties");
  check(cudaDeviceGetAttribute(&found.second, cudaDevAttrComputeCapabilityMinor, device),
        "read the device's properties");
  const std::string asked = environment_value("CAPSTAN_GPU_LIKE");
  if (asked.empty()) return found;
  require(std::sscanf(asked.c_str(), "%d.%d", &like.first, &like.second) == 2, Fault::usage,
          "CAPSTAN_GPU_LIKE: expected a compute capability, such as 7.5, found '{}'", asked);
  return std::min(found, like);
}

CudaFacts facts() {
  CudaFacts f;
  const int device = device_index();
  std::array<char, 32> bus_id{};
  f.name = device_name();
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
        "find the device's address");
  f.bus_id = bus_id.data();
  f.capability = capability_of(device);
  check(cudaRuntimeGetVersion(&f.runtime_version), "read CUDA's version");
  check(cudaDriverGetVersion(&f.driver_version), "read the driver's version");
  return f;
}

}  // namespace capstan::cuda
