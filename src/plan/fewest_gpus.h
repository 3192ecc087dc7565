#pragma once

#include <functional>
#include <optional>

#include "plan/mesh_search.h"
#include "plan/run_on.h"

// How many GPUs a run needs.
namespace capstan {

// GPUs on which a run fits, and how they share its work.
struct GpuCount {
  Machines machines;
  MeshPlan plan;  // its step is 0 if no times are known
  // The keys of the recipe that say so, where they differ from it: "devices: 8, num_nodes: 2 with
  // tensor_parallel: 8".
  std::string what;
};

// The first number of GPUs on which the run fits, with as little memory as it can do with: the
// state sharded over ranks that also share layers, sequences or, as stages, the blocks;
// micro-batches of one sample; and all of its activations recomputed. On one machine powers of two
// are tried, then machines with `per_machine` GPUs each, up to `most` GPUs in all; of more than 32
// machines only some numbers. If times are known, the mesh is the one with which a step is shortest
// there. None if no number is enough, or a step has too few samples for more.
//
// `machines`: those with so many GPUs each.
std::optional<GpuCount> fewest_gpus(
    const PlannedTask& task, int per_machine, int most,
    const std::function<Machines(int devices, int count)>& machines);

}  // namespace capstan
