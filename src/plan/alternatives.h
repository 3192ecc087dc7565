#pragma once

#include <string>
#include <vector>

#include "plan/fit.h"
#include "plan/run_on.h"

// How a plan would change: with a remedy, with more machines, or if the machine were slower.
namespace capstan {

// What would make a run fit, and what it costs.
struct Remedy {
  std::string what;
  int64_t bytes = 0;                 // that the device then needs
  std::optional<StepEstimate> step;  // if times are known
};
// The changes of a plan that does not fit, the fastest first; in the order of the plan, if times
// are not known.
std::vector<Remedy> remedies(const PlannedTask& task, const Fit& fit, const Machines& machines);
void fastest_first(std::vector<Remedy>& remedies);

// Options that are otherwise than the plan's, as a remedy named `what`, if every rank fits with
// them; where none of the activations are recomputed for that, with the least recomputation that
// is enough: "quantize: bnb.nf4 with activations: block".
std::optional<Remedy> remedy_with(const std::string& what, const PlannedTask& task,
                                  const TrainOptions& options, const Machines& machines);

// The run on a number of GPUs.
struct ScalePoint {
  Machines machines;
  RunThere run;
  double efficiency = 0;  // tokens/s for each GPU, of that of the fewest that fit; 0: it is unknown
};
// From the fewest GPUs that its memory allows on, doubled up to `most`, and the greatest number
// that is too few, if there is one. `per_machine`: the most that one machine has. Ends where a step
// has no sample for another rank.
std::vector<ScalePoint> scaling(const PlannedTask& task, const GpuModel& gpu, int per_machine,
                                int most, const Stated& stated = {});

// How the time of a step would change.
struct Sensitivity {
  std::string what;  // "matrix products 10% slower"
  StepEstimate step;
  double change = 0;  // of the seconds: 0.07 is 7% more
};
// What changes it most comes first; what changes it by less than 0.05% is left out.
std::vector<Sensitivity> sensitivities(const PlannedTask& task, const TrainOptions& options,
                                       const Machines& machines);

}  // namespace capstan
