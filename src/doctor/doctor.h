#pragma once

#include <vector>

#include "doctor/facts.h"
#include "doctor/findings.h"

// Checks what this machine offers for a run and what is wrong with it. Facts are collected first
// and then judged, so that each step can be tested alone.
namespace capstan {

std::vector<Finding> judge(const MachineFacts& facts);

}  // namespace capstan
