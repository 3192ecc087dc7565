#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

std::string device_name(Device device);  // as people call it: "NVIDIA H200", "CPU"
int64_t free_device_memory();            // of the GPU, in bytes

}  // namespace capstan
