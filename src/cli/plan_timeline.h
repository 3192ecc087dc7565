#pragma once

#include <nlohmann/json.hpp>

#include "plan/predict.h"

namespace capstan::cli {

// What a page draws of a simulated step: for each device or stage, what it computes, when it waits,
// and what it sends. Neighbouring ops are one event. A pipeline has its passes.
nlohmann::ordered_json step_timeline(const StepTrace& step);

// Memory in use over the step, by category, at up to 200 moments that include each peak; empty if
// the trace has none, as of a pipeline.
nlohmann::ordered_json memory_timeline(const StepTrace& step);

}  // namespace capstan::cli
