#pragma once

#include <string>

#include "tensor/device.h"

namespace capstan {

// The system's name for the processor; "unknown" if it has none.
std::string cpu_model();

// The key of a calibration: "NVIDIA H200"; for a CPU the model and the number of threads, "AMD EPYC
// 9654, 16 threads".
std::string machine_name(Device device);

// What this machine calls itself; "?" if it does not say.
std::string host_name();

}  // namespace capstan
