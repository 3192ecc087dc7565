#include "infer/evaluation.h"

#include <utility>

#include "base/plain_nan.h"
#include "infer/evaluation_watch.h"

namespace capstan {
namespace {

void evaluate_batch(Queue& q, const Parts& model, const Batch& batch, Tensor loss) {
  const auto phase = q.arena().phase("evaluate");
  model.pass_through(q, model[0].share_of(batch.tokens()),
                     [&](Transformer& part, size_t, Buffer in) {
                       return part.evaluate(q, batch, loss, std::move(in));
                     });
}

void stay_idle(Queue& q, const Parts& model) {
  const auto phase = q.arena().phase("idle evaluation");
  for (size_t i = 0; i < model.size(); ++i) model[i].idle_forward(q);
}

thread_local std::function<bool()> t_go_on;

}  // namespace

EvaluationWatch::EvaluationWatch(std::function<bool()> go_on)
    : before_(std::exchange(t_go_on, std::move(go_on))) {}

EvaluationWatch::~EvaluationWatch() {
  t_go_on = std::move(before_);
}

Evaluation evaluate(Queue& q, const Parts& model, DeviceBatch& room, Tensor loss,
                    MicroBatches& data, Tensor all_losses) {
  const double zero = 0;
  q.upload(loss, &zero);
  while (const HostBatch* host = data.next()) {
    if (host->tokens() > 0)
      evaluate_batch(q, model, room.upload(q, *host), loss);
    else
      stay_idle(q, model);
    if (t_go_on && !t_go_on()) break;
  }
  model.params().group().sum_scalars(q, loss, all_losses);
  return {plain_nan(q.value<double>(loss)), data.targets()};
}

void rehearse_evaluation(Queue& q, const Parts& model, const DeviceBatch& room, Tensor loss) {
  evaluate_batch(q, model, room.largest(), loss);
  if (model.params().group().size() > 1) stay_idle(q, model);
}

}  // namespace capstan
