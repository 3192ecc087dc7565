#pragma once

#include <string>

#include "comm/communicator.h"

namespace capstan {

// A rank of a group that exists on `sim` alone: its collectives take no time yet and move nothing.
Communicator simulated(const Ranks& ranks, std::string name);

}  // namespace capstan
