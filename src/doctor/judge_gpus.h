#pragma once

#include <string_view>
#include <utility>

#include "doctor/facts.h"
#include "doctor/findings.h"

namespace capstan {

// The part of judge() that is about drivers and cards.
void judge_gpus(const MachineFacts& facts, Findings& to);

// Whether kernels built for these architectures, as CMake lists them, run on a GPU of this compute
// capability: 90a only on 9.0; 80 on 8.0 and later 8.x, and through its PTX on all later ones;
// 80-real without the PTX.
bool runs_on(std::string_view architectures, std::pair<int, int> capability);

}  // namespace capstan
