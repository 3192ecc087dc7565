#include "train/balance.h"

#include <map>

#include "base/units.h"
#include "model/transformer.h"
#include "parallel/pipeline_schedule.h"

namespace capstan {
namespace {

CostModel typical(Device device) {
  CostModel model{.device = device};
  if (device == Device::cuda) {
    model.flops_per_second = 5e14;
    model.bytes_per_second = 3e12;
  }
  return model;
}

double seconds_of(Queue& q, Transformer& part, const Batch& batch, Tensor loss) {
  const double start = q.now();
  const auto phase = q.arena().phase("piece", {});
  const auto make = [&] {
    return q.arena().make(Category::activations, part.params().types().compute,
                          {batch.tokens(), part.config().hidden}, "residual stream");
  };
  Transformer::Kept kept = part.make_kept();
  const std::optional<StepKey> key =
      part.params().spec().lora ? std::optional(StepKey()) : std::nullopt;
  part.forward(q, batch, kept, part.is_first() ? Buffer() : make(), key);
  if (part.trains())
    part.backward(q, batch, kept, 1.0f, loss, part.receives_gradients() ? make() : Buffer());
  return q.now() - start;
}

// Of a first, a middle and a last block with their ends of the model.
struct Seconds {
  double first, middle, last;
};
Seconds measure(const TrainOptions& options, Recompute policy) {
  ModelConfig config = options.model;
  config.layers = 3;
  Arena arena;
  Queue q(Device::sim, arena, typical(options.device));
  Parameters params(arena, make_spec(config, options.decay, options.lora, options.quantize),
                    options.precision, Gradients::kept);
  const DeviceBatch room(q, options.limits, config, DeviceBatch::Arrays::with_ordinals);
  const Buffer loss = arena.make(Category::data, DType::f64, {1}, "loss");
  const auto of = [&](int block) {
    Transformer part(q, params, policy, options.limits.longest, {block, block + 1});
    Arena apart;  // each piece alone
    Queue beside(Device::sim, apart, typical(options.device));
    return seconds_of(beside, part, room.largest(), loss);
  };
  return {of(0), of(1), of(2)};
}

}  // namespace

std::vector<int> balanced_pieces(const TrainOptions& options, int pieces) {
  const auto layers = static_cast<int>(options.model.layers);
  require(pieces <= layers, Fault::usage,
          "pipeline_parallel: {} of {} need {} blocks, one each, but the model has {}; use fewer "
          "stages{}",
          count(options.mesh.pipeline, "stage"), count(options.pipeline.chunks, "chunk"), pieces,
          layers, options.pipeline.chunks > 1 ? ", or fewer chunks (pipeline_schedule)" : "");
  std::map<Recompute, Seconds> known;
  std::vector<double> blocks;
  for (int layer = 0; layer < layers; ++layer) {
    const Recompute policy = options.recompute.of(layer);
    if (!known.contains(policy)) known[policy] = measure(options, policy);
    blocks.push_back(known[policy].middle);
  }
  const Seconds& ends = known.begin()->second;
  return balanced_cuts(blocks, pieces, std::max(0.0, ends.first - ends.middle),
                       std::max(0.0, ends.last - ends.middle));
}

std::vector<int> cuts_of(const TrainOptions& options) {
  const int stages = options.mesh.pipeline;
  if (stages == 1) return {0, static_cast<int>(options.model.layers)};
  if (!options.pipeline.cuts.empty()) return options.pipeline.cuts;
  TrainOptions o = options;
  o.limits = o.limits.for_shares(o.mesh.token_multiple());
  return balanced_pieces(o, stages * o.pipeline.chunks);
}

}  // namespace capstan
