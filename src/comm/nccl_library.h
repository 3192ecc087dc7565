#pragma once

#include <chrono>

#include "comm/communicator.h"

namespace capstan {

// The same ranks, each a process with a GPU that its thread has chosen: collectives are NCCL's,
// from GPU to GPU, and everything else is as in `processes`. A rank that waits longer than
// `timeout` ends the group. Throws Fault::device if NCCL is missing or does not start.
Communicator over_nccl(const Communicator& processes, std::chrono::steady_clock::duration timeout);

}  // namespace capstan
