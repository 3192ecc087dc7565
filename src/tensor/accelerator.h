#pragma once

#include <cstdint>

#include "base/names.h"

namespace capstan {

// What the user asks to compute with; device_of (tensor/device.h) says which Device that is.
enum class Accelerator : uint8_t { automatic, cpu, cuda };

template <>
struct NameTable<Accelerator> {
  static constexpr Named<Accelerator> rows[] = {{Accelerator::automatic, "auto"},
                                                {Accelerator::cpu, "cpu"},
                                                {Accelerator::cuda, "cuda"},
                                                {Accelerator::cuda, "gpu"}};
};

}  // namespace capstan
