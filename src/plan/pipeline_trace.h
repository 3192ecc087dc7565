#pragma once

#include <span>

#include "parallel/pipeline_schedule.h"
#include "tensor/trace_file.h"

namespace capstan {

// The step of a pipeline: the passes of all its stages, and what each stage does besides, such as
// the update, which it begins when all passes are done.
struct PipelineStep {
  PipelineShape shape;
  std::span<const PipelineSchedule> schedules;  // by stage
  std::span<const PipelineCosts> costs;
  std::span<const double> rests;  // seconds besides passes
  int ranks = 1;                  // of each stage
  double message_bytes = 0;       // that a rank sends to the next stage
};

// Its timeline, by the rules of pipeline_seconds_by_stage. Each stage is a process. Its lane of
// computation has its passes, and a "wait" wherever it waits; those of receiving have messages, to
// which arrows lead from the passes that send them.
TraceFile pipeline_trace(const PipelineStep& step);

}  // namespace capstan
