#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/accelerator.h"

namespace capstan {

enum class Device : uint8_t {
  cpu,   // computes synchronously
  cuda,  // computes asynchronously on one NVIDIA GPU
  sim,   // computes nothing: records buffers and costs, and advances a clock
};
std::string_view name_of(Device device);

// Whether this program was built with the cuda ops. Without them it links what is under no_cuda/:
// no queue or arena on cuda can be made.
inline constexpr bool kWithCuda = CAPSTAN_WITH_CUDA != 0;

// Whether this program can use a GPU now; otherwise fills in `why_not`.
bool cuda_present(std::string_view* why_not = nullptr);

// `automatic` is a GPU if one can be used, else the CPU.
Device device_of(Accelerator accelerator);
// The device of the accelerator with this name. Throws Fault::usage, listing the names.
Device parse_accelerator(std::string_view name);
// Throws Fault::device, with the reason, unless the device can be used.
void require_present(Device device);

// The GPUs that this process sees are numbered from 0. A thread uses one of them, the first unless
// it chose another: its arenas, queues and the functions below are of that GPU.
int gpu_count();
int gpu_index();
// Chooses the calling thread's GPU, before its first arena or queue there. Throws Fault::device if
// there is no such GPU.
void use_gpu(int index);
// Lets each of these GPUs read the others' memory. Throws Fault::device if they cannot. The calling
// thread then uses one of them.
void let_gpus_share_memory(std::span<const int> indices);

std::string device_name(Device device);  // display name: "NVIDIA H200", "CPU"
int64_t free_device_memory();            // of the GPU, in bytes

// The GPU of this thread, as reported by CUDA.
struct CudaFacts {
  std::string name, bus_id;        // "NVIDIA H200", "0000:19:00.0"
  std::pair<int, int> capability;  // 9.0
  int runtime_version = 0;         // version this program was built with: 13000 is 13.0
  int driver_version = 0;          // newest version that the driver supports
};
// None if there is no usable GPU. Takes no memory on it.
std::optional<CudaFacts> cuda_facts();

// Whether the device computes with bf16: a CPU does, and GPUs from Ampere on. A GPU that is not
// there, for a plan, is assumed to.
bool computes_bf16(Device device);
constexpr bool computes_bf16(std::pair<int, int> capability) {
  return capability >= std::pair(8, 0);
}

// Whether the device has FP8 matrix products in hardware.
bool multiplies_fp8(Device device);
// … a GPU of this compute capability.
constexpr bool multiplies_fp8(std::pair<int, int> capability) {
  return capability >= std::pair(8, 9);
}

}  // namespace capstan
