#pragma once

#include <string>

#include "cli/plan_answers.h"

namespace capstan::cli {

// One simulated step of a plan: the first of the data, or of the largest micro-batches.
StepTrace trace_of(const Planned& planned, const TrainOptions& options, const Recipe& recipe,
                   const Time& time);
// Writes it (--trace), and says so. Throws Fault::file.
void write_plan_trace(const std::string& path, const Planned& planned, StepTrace& step,
                      const Time& time);

}  // namespace capstan::cli
