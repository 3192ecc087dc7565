#include "infer/evaluation.h"

namespace capstan {

Evaluation evaluate(Queue& q, Transformer& model, DeviceBatch& room, Tensor loss,
                    MicroBatches& data, Tensor all_losses) {
  const double zero = 0;
  q.upload(loss, &zero);
  while (const HostBatch* host = data.next()) {
    if (host->tokens() == 0) {
      const auto phase = q.arena().phase("idle evaluation");
      model.idle_evaluation(q);
      continue;
    }
    const auto phase = q.arena().phase("evaluate");
    model.evaluate(q, room.upload(q, *host), loss);
  }
  model.params().group().sum_scalars(q, loss, all_losses);
  return {q.value<double>(loss), data.targets()};
}

void rehearse_evaluation(Queue& q, Transformer& model, const DeviceBatch& room, Tensor loss) {
  {
    const auto phase = q.arena().phase("evaluate");
    model.evaluate(q, room.largest(), loss);
  }
  if (model.params().group().size() == 1) return;
  const auto phase = q.arena().phase("idle evaluation");
  model.idle_evaluation(q);
}

}  // namespace capstan
