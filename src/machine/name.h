#pragma once

#include <string>

#include "tensor/device.h"

namespace capstan {

// As the system names the processor; "unknown" where it does not.
std::string cpu_model();

// What a calibration is for: "NVIDIA H200"; of a CPU the model with the threads that compute,
// "AMD EPYC 9654, 16 threads".
std::string machine_name(Device device);

}  // namespace capstan
