#include "tensor/device.h"

#include "tensor/cuda/calls.h"

namespace capstan {

std::string_view name_of(Device device) {
  switch (device) {
    case Device::cpu: return "cpu";
    case Device::cuda: return "cuda";
    case Device::sim: return "sim";
  }
  return "?";
}

bool cuda_present(std::string_view* why_not) {
  const char* why = "this program was built without CUDA";
  bool present = false;
  if constexpr (kWithCuda) present = cuda::present(&why);
  if (!present && why_not != nullptr) *why_not = why;
  return present;
}

std::string device_name(Device device) {
  if constexpr (kWithCuda)
    if (device == Device::cuda) return cuda::device_name();
  return device == Device::cpu ? "CPU" : "simulated";
}

int64_t free_device_memory() {
  if constexpr (kWithCuda) return cuda::free_memory();
  return 0;
}

}  // namespace capstan
