#include <array>

#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"
#include "tensor/device.h"

namespace capstan::cuda {

CudaFacts facts() {
  CudaFacts f;
  const int device = device_index();
  int major = 0, minor = 0;
  std::array<char, 32> bus_id{};
  f.name = device_name();
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
        "find the device's address");
  f.bus_id = bus_id.data();
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "read the device's properties");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "read the device's properties");
  f.capability = {major, minor};
  check(cudaRuntimeGetVersion(&f.runtime_version), "read CUDA's version");
  check(cudaDriverGetVersion(&f.driver_version), "read the driver's version");
  return f;
}

}  // namespace capstan::cuda
