#include "cli/plan_trace.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/version.h"
#include "tensor/trace_file.h"

namespace capstan::cli {

StepTrace trace_of(const Planned& planned, const TrainOptions& options, const Recipe& recipe,
                   const Time& time) {
  const CostModel machine = cost_model(time.calibration, options);
  return planned.inputs ? trace_run(options, machine, recipe, *planned.inputs)
                        : trace_largest(options, machine, micro_batches_of(recipe, options));
}

void write_plan_trace(const std::string& path, const Planned& planned, StepTrace& step,
                      const Time& time) {
  step.file.about = {
      {"program", "capstan " CAPSTAN_BUILD},
      {"time", "simulated"},
      {"device", time.calibration.name},
      {"model", planned.model},
      {"step", planned.inputs ? "the first of the data" : "of the largest micro-batches"},
      {"step_seconds", fmt::format("{}", step.estimate.seconds)},
      {"predicted_step_seconds", fmt::format("{}", time.step.seconds)}};
  write_trace(path, step.file);
  log::info("trace: wrote {}: one simulated step of {}", path,
            format_duration(step.estimate.seconds));
}

}  // namespace capstan::cli
