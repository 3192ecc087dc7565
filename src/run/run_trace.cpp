// The timeline of one step: log.trace.
#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "run/run.h"
#include "tensor/trace_file.h"

namespace capstan {

void TrainingRun::require_traceable() const {
  if (!recipe_.log_trace) return;
  require(recipe_.log_trace_step <= length_.steps(), Fault::usage,
          "log.trace_step: step {} is to be traced, but the run has {}; set log.trace_step to at "
          "most {}",
          recipe_.log_trace_step, count(length_.steps(), "step"), length_.steps());
}

void TrainingRun::begin_trace() {
  if (!recipe_.log_trace || !team_.leads() || record_.step + 1 != recipe_.log_trace_step) return;
  queue_.synchronize();
  trace_ = std::make_unique<Trace>(queue_.trace_clock());
  queue_.trace_to(trace_.get());
}

void TrainingRun::end_trace() {
  if (!trace_) return;
  queue_.trace_to(nullptr);
  trace_->finish(queue_.trace_clock(), fmt::format("step {}", record_.step + 1));
}

void TrainingRun::write_step_trace() {
  TraceFile file{.about = {{"program", fmt::format("capstan {}", invocation_.program)},
                           {"command", invocation_.command},
                           {"time", "measured"},
                           {"device", identity_.machine},
                           {"model", inputs_.model.name},
                           {"step", fmt::format("{}", record_.step + 1)},
                           {"step_seconds", fmt::format("{}", trace_->seconds())}}};
  file.processes.push_back({0, "rank 0", std::move(*trace_)});
  trace_.reset();
  traced_ = true;
  write_trace(*recipe_.log_trace, file);
  log::info("trace: wrote {}: step {}{}", *recipe_.log_trace, record_.step + 1,
            team_.size() > 1 ? fmt::format(" of rank 0, one of {}", team_.size()) : "");
}

void TrainingRun::warn_of_no_trace() const {
  if (!recipe_.log_trace || !team_.leads() || traced_) return;
  log::warn("trace: {} was not written: step {} {}", *recipe_.log_trace, recipe_.log_trace_step,
            recipe_.log_trace_step <= first_step() ? "was done before the run resumed"
                                                   : "was not reached");
}

}  // namespace capstan
