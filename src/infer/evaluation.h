#pragma once

#include "data/batch/device_batch.h"
#include "data/batch/micro_batches.h"
#include "model/parts.h"

namespace capstan {

// A sum of losses, and its number of targets.
struct Evaluation {
  double loss_sum = 0;
  int64_t targets = 0;
  double mean() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0; }
};

// The loss over the micro-batches that were started, in phases "evaluate" of the queue's arena.
// `loss` is one f64 on the device. Waits for the result. Among several ranks, each evaluates its
// micro-batches, and all get the same result; `all_losses` is the room for it
// (Communicator::make_scalars). The stages of a pipeline evaluate the same ones together.
Evaluation evaluate(Queue& q, const Parts& model, DeviceBatch& room, Tensor loss,
                    MicroBatches& data, Tensor all_losses = {});

// Requests the memory for the largest micro-batch, for a plan.
void rehearse_evaluation(Queue& q, const Parts& model, const DeviceBatch& room, Tensor loss);

}  // namespace capstan
