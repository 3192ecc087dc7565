// How the ranks of a recipe share its work.
#include <fmt/format.h>

#include <algorithm>

#include "train/setup.h"

namespace capstan {
namespace {

PipelineOptions pipeline_of(const Recipe& r, int data_ranks) {
  const PipelineChoice& choice = r.pipeline_schedule;
  PipelineOptions o;
  if (choice.kind == PipelineChoice::zero_bubble) o.kind = PipelineKind::zero_bubble;
  o.chunks = static_cast<int>(choice.chunks);
  o.micro_batches = (r.global_batch_size - 1) / r.micro_batch_size.size / data_ranks + 1;
  return o;
}

MeshShape mesh_for(const Recipe& r, const Ranks& ranks) {
  const MeshShape mesh = mesh_of(r);
  const std::string there = ranks.size == 1 ? "is one" : fmt::format("are {}", ranks.size);
  require(mesh.ranks() != mesh.pipeline || ranks.size % mesh.ranks() == 0, Fault::usage,
          "pipeline_parallel: {} stages need as many ranks or a multiple of it, but there {}; set "
          "devices",
          mesh.pipeline, there);
  require(ranks.size % mesh.ranks() == 0, Fault::usage,
          "tensor_parallel {} × context_parallel {} × pipeline_parallel {} need {} ranks or a "
          "multiple of it, but there {}; set devices",
          mesh.tensor, mesh.context, mesh.pipeline, mesh.ranks(), there);
  return mesh;
}

// On how many machines the ranks are that have the same part of the model, if they are as many on
// each; else 0.
int machines_of_stage(int ranks, int machines, int stages, int tensor) {
  if (ranks % machines != 0) return 0;
  const int on_machine = ranks / machines, in_stage = ranks / stages;
  // Those that share a layer are on one machine.
  if (on_machine % tensor != 0) return 0;
  if (in_stage <= on_machine) return on_machine % in_stage == 0 ? 1 : 0;
  return in_stage % on_machine == 0 ? in_stage / on_machine : 0;
}

}  // namespace

MeshShape mesh_of(const Recipe& r) {
  MeshShape mesh{.pipeline = static_cast<int>(r.pipeline_parallel),
                 .tensor = static_cast<int>(r.tensor_parallel),
                 .context = static_cast<int>(r.context_parallel)};
  const bool can = mesh.tensor > 1 && r.precision != Precision::fp8_mixed;
  mesh.overlap = can && r.tensor_parallel_overlap == Overlap::on;
  mesh.padded_to_overlap = can && r.tensor_parallel_overlap != Overlap::off;
  return mesh;
}

void set_ranks(TrainOptions& o, const Recipe& r, const Ranks& ranks, const Network& network,
               int machines) {
  o.ranks = ranks;
  o.network = network;
  o.mesh = mesh_for(r, ranks);
  o.choose_overlap = o.mesh.padded_to_overlap && !o.mesh.overlap;
  const int stages = o.mesh.pipeline, sharing = ranks.size / stages / o.mesh.tensor;
  o.pipeline = pipeline_of(r, batch_ranks(ranks, o.mesh).size);
  o.machines = std::max(machines, static_cast<int>(r.num_nodes));
  machines = machines_of_stage(ranks.size, o.machines, stages, o.mesh.tensor);
  const bool even = machines > 0;
  o.single_micro_batch = o.pipeline.micro_batches == 1;
  switch (r.strategy.kind) {
    case Strategy::automatic:
      o.sharding = sharing == 1 ? kDdp : stages > 1 ? kZero1 : kZero3;
      break;
    case Strategy::ddp:
    case Strategy::dp: o.sharding = kDdp; break;
    case Strategy::zero1: o.sharding = kZero1; break;
    case Strategy::zero2: o.sharding = kZero2; break;
    case Strategy::zero3: o.sharding = kZero3; break;
    case Strategy::hybrid:
      require(even, Fault::usage,
              "strategy: hybrid needs as many ranks {}on each machine, and they are not",
              o.mesh.ranks() > 1 ? "with the same part of the model " : "");
      o.sharding = hybrid(machines);
      break;
  }
  o.sharding.machines = even ? machines : 1;
  o.sharding.offload = r.strategy.offload;
}

}  // namespace capstan
