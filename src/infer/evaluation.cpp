#include "infer/evaluation.h"

namespace capstan {

Evaluation evaluate(Queue& q, Transformer& model, DeviceBatch& room, Tensor loss,
                    MicroBatches& data) {
  const double zero = 0;
  q.upload(loss, &zero);
  while (const HostBatch* host = data.next()) {
    const auto phase = q.arena().phase("evaluate");
    model.evaluate(q, room.upload(q, *host), loss);
  }
  return {q.value<double>(loss), data.targets()};
}

void rehearse_evaluation(Queue& q, Transformer& model, const DeviceBatch& room, Tensor loss) {
  const auto phase = q.arena().phase("evaluate");
  model.evaluate(q, room.largest(), loss);
}

}  // namespace capstan
