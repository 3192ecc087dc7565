#include "train/train_options.h"

#include <fmt/format.h>

namespace capstan {

std::string mesh_name(const TrainOptions& o) {
  const std::string strategy = strategy_name(o.sharding);
  if (o.mesh.pipeline == 1) return strategy;
  const std::string schedule = o.pipeline.kind == PipelineKind::zero_bubble ? "zero_bubble"
                               : o.pipeline.chunks == 1
                                   ? "1f1b"
                                   : fmt::format("interleaved:{}", o.pipeline.chunks);
  if (o.ranks.size == o.mesh.pipeline)
    return fmt::format("{} stages ({}){}", o.mesh.pipeline, schedule,
                       o.sharding.offload ? ", offload" : "");
  return fmt::format("{} in each of {} stages ({})", strategy, o.mesh.pipeline, schedule);
}

}  // namespace capstan
