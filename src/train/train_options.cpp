#include "train/train_options.h"

#include <fmt/format.h>

namespace capstan {

ModelSpec spec_of(const TrainOptions& o, const Ranks& rank) {
  // Blocks of 8-bit moments must not be cut.
  const bool few_bits = o.optimizer.kind == OptimizerKind::adamw8bit;
  const LayerSplit split{tensor_ranks(rank, o.mesh), few_bits ? kAdamW8bitBlock : 64};
  return make_spec(o.model, o.decay, o.lora, o.quantize, split);
}

std::string precision_name(const TrainOptions& o) {
  return fmt::format("{}{}", name_of(o.precision), uses_tf32(o) ? " (TF32)" : "");
}

std::string mesh_name(const TrainOptions& o) {
  std::string strategy = strategy_name(o.sharding);
  const int shares = o.mesh.tensor * o.mesh.context;
  // Without ranks that divide the data there is nothing to say of the strategy.
  if (shares > 1 && o.ranks.size == o.mesh.ranks() && o.mesh.context == 1)
    strategy = o.sharding.offload ? "offload" : "";
  const auto add = [&](int ranks, const char* what) {
    if (ranks > 1) strategy += fmt::format("{}{} {}", strategy.empty() ? "" : ", ", ranks, what);
  };
  add(o.mesh.context, "sharing each sequence");
  add(o.mesh.tensor, o.mesh.overlap ? "sharing each layer (overlapped)" : "sharing each layer");
  if (o.mesh.pipeline == 1) return strategy;
  const std::string schedule = o.pipeline.kind == PipelineKind::zero_bubble ? "zero_bubble"
                               : o.pipeline.chunks == 1
                                   ? "1f1b"
                                   : fmt::format("interleaved:{}", o.pipeline.chunks);
  if (o.ranks.size == o.mesh.pipeline && shares == 1)
    return fmt::format("{} stages ({}){}", o.mesh.pipeline, schedule,
                       o.sharding.offload ? ", offload" : "");
  return fmt::format("{} in each of {} stages ({})", strategy, o.mesh.pipeline, schedule);
}

}  // namespace capstan
