#pragma once

#include <vector>

#include "doctor/facts.h"
#include "doctor/findings.h"

// What this machine can do for a run, and what is wrong with it: facts are gathered first and
// judged then, so that each can be looked at alone.
namespace capstan {

std::vector<Finding> judge(const MachineFacts& facts);

}  // namespace capstan
