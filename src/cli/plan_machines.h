#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/plan_question.h"
#include "plan/gpu_catalogue.h"
#include "plan/mesh_search.h"

// `capstan plan --machines`: which of a user's machines trains a run best, and how.
namespace capstan::cli {

struct NamedMachines {
  GpuModel gpu;
  int devices = 1, count = 1;  // GPUs of each machine, and machines that work together
};

// "8xa100-40,4xrtx4090,2x8xh100-sxm,t4". The beginning of a name is enough: a GPU of the
// catalogue with it is taken, and said. Throws Fault::usage for anything else.
std::vector<NamedMachines> parse_machines(std::string_view text, const GpuCatalogue& catalogue);

// Prints a row for each of the question's machines, the fastest first. Returns the exit code: 3 if
// the run fits on none.
int plan_machines(Question& question);

}  // namespace capstan::cli
