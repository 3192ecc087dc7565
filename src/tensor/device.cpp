#include "tensor/device.h"

#include "base/error.h"
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
  const char* why = nullptr;
  const bool present = cuda::present(&why);
  if (!present && why_not != nullptr) *why_not = why;
  return present;
}

Device device_of(Accelerator accelerator) {
  switch (accelerator) {
    case Accelerator::automatic: return cuda_present() ? Device::cuda : Device::cpu;
    case Accelerator::cpu: return Device::cpu;
    case Accelerator::cuda: return Device::cuda;
  }
  fail(Fault::bug, "unknown accelerator");
}

Device parse_accelerator(std::string_view name) {
  return device_of(parse_named<Accelerator>("accelerator", name));
}

void require_present(Device device) {
  std::string_view why;
  require(device != Device::cuda || cuda_present(&why), Fault::device,
          "accelerator: cuda requested, but it cannot be used: {}; use --accelerator cpu", why);
}

int gpu_count() {
  return cuda::device_count();
}
int gpu_index() {
  return cuda::device_index();
}
void use_gpu(int index) {
  cuda::use_device(index);
}

void let_gpus_share_memory(std::span<const int> indices) {
  for (const int one : indices)
    for (const int other : indices)
      if (one != other) cuda::read_memory_of(one, other);
}

std::string device_name(Device device) {
  if (device == Device::cuda) return cuda::device_name();
  return device == Device::cpu ? "CPU" : "simulated";
}

int64_t free_device_memory() {
  return cuda::free_memory();
}

std::optional<CudaFacts> cuda_facts() {
  if (cuda_present()) return cuda::facts();
  return std::nullopt;
}

bool computes_bf16(Device device) {
  const auto facts = device == Device::cuda ? cuda_facts() : std::nullopt;
  return !facts || computes_bf16(facts->capability);
}

bool multiplies_fp8(Device device) {
  const auto facts = device == Device::cuda ? cuda_facts() : std::nullopt;
  return facts && multiplies_fp8(facts->capability);
}

}  // namespace capstan
