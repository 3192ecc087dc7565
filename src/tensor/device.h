#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace capstan {

enum class Device : uint8_t {
  cpu,   // computes, here and now
  cuda,  // computes on one NVIDIA GPU, behind the calls
  sim,   // computes nothing: notes buffers and costs, and advances a clock
};
std::string_view name_of(Device device);

// Whether this program was built with the ops of cuda. Without them no queue or arena on cuda can
// be made, and calls of them stand behind `if constexpr (kWithCuda)`.
inline constexpr bool kWithCuda = CAPSTAN_WITH_CUDA != 0;

// Whether a GPU can be used, now, by this program; `why_not` is filled in where it cannot.
bool cuda_present(std::string_view* why_not = nullptr);

// What `--accelerator` names: auto (the GPU where one can be used, else the CPU), cpu, cuda or gpu.
// Throws Fault::usage for another word.
Device parse_accelerator(std::string_view name);
// Throws Fault::device, with the reason, unless the device can be used.
void require_present(Device device);

std::string device_name(Device device);  // as people call it: "NVIDIA H200", "CPU"
int64_t free_device_memory();            // of the GPU, in bytes

// The GPU that computes, as CUDA sees it.
struct CudaFacts {
  std::string name, bus_id;        // "NVIDIA H200", "0000:19:00.0"
  std::pair<int, int> capability;  // 9.0
  int runtime_version = 0;         // that this program was built with: 13000 is 13.0
  int driver_version = 0;          // the newest that the driver can
};
// None where there is no GPU to use. Takes no memory on it.
std::optional<CudaFacts> cuda_facts();

// Whether the device multiplies matrices of FP8: not whether it can compute as if.
bool multiplies_fp8(Device device);
// … a GPU of this compute capability.
constexpr bool multiplies_fp8(std::pair<int, int> capability) {
  return capability >= std::pair(8, 9);
}

}  // namespace capstan
