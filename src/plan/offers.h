#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/prices.h"
#include "plan/run_on.h"
#include "plan/uncertainty.h"

// What a run would take on machines that can be rented: time and money.
namespace capstan {

// What the user wants of a run.
struct Wish {
  std::optional<double> seconds, dollars;
  bool any() const { return seconds || dollars; }
};

struct RentedRun {
  GpuModel gpu;
  Machines machines;
  RunThere run = {};
  Instances instances = {};        // of each machine
  double seconds = 0;              // of the run, as expected
  double longest_seconds = 0;      // the most that is likely
  Dollars dollars = {};            // for it
  bool front = false;              // nothing else is both faster and cheaper
  std::optional<bool> meets = {};  // the wish, even if the run takes the longest that is likely

  Strategy strategy() const;  // of the recipe, to run so
};

// The run on every offer that it fits on, and on two and four of the largest instances of several
// GPUs; the cheapest first; not on so many GPUs that a step has no sample for some. Instances are
// joined as the prices say, unless `stated` knows better. The number of steps must be known.
// `gpus`: rows of the catalogue; those without a price are left out.
std::vector<RentedRun> rented_runs(const PlannedTask& task, const std::vector<GpuModel>& gpus,
                                   const Prices& prices, const Wish& wish,
                                   const Stated& stated = {});

// The first one that meets the wish; null: none does.
const RentedRun* that_meets(const std::vector<RentedRun>& runs);
// Whether it is done by the deadline; true without one.
bool in_time(const Wish& wish, const RentedRun& run);
// The cheapest that is done in time, or if none is, the fastest; null: there is none at all.
const RentedRun* nearest_to(const Wish& wish, const std::vector<RentedRun>& cheapest_first);

}  // namespace capstan
