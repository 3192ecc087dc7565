#pragma once

#include <string>

#include "tensor/queue.h"

namespace capstan {

// Tables for the end of a run, ready to print.

// Planned and allocated bytes by category, the total, and what the process really took.
std::string memory_table(const MemoryPlan& plan, const Arena& arena);

// The plan alone: by category at the worst moment, and where that moment is.
std::string plan_table(const MemoryPlan& plan);

// Time, arithmetic and traffic of the `rows` ops that took the longest.
std::string op_table(const Queue& q, int rows);

// The most memory this process has had in RAM so far, in bytes; 0 where the system does not say.
int64_t peak_resident_bytes();

}  // namespace capstan
