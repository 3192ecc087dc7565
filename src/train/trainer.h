#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/training_checkpoint.h"
#include "comm/simulated.h"
#include "data/batch/step_batches.h"
#include "infer/evaluation.h"
#include "model/decoder.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/pipeline.h"
#include "train/train_options.h"

namespace capstan {

struct StepResult {
  // Loss, norm and targets are those of the whole global batch, of all ranks; tokens, padding and
  // micro-batches are those of this rank.
  double loss = 0;        // mean over the targets
  double grad_norm = 0;   // before clipping
  double loss_scale = 1;  // that the gradients were computed with
  double lr = 0;
  int64_t tokens = 0;  // including padding
  int64_t padding = 0;
  int64_t targets = 0;
  int64_t micro_batches = 0;
  bool skipped = false;     // not finite and skipped: the weights are unchanged
  bool overflowed = false;  // gradients exceeded f16: the weights are unchanged, the scale is less
  bool masked = false;      // no targets: nothing was computed or changed
};

// Thrown after an update made weights or moments that are not finite: the trainer's state is
// unusable.
class NotFiniteUpdate : public Error {
 public:
  using Error::Error;
};

// A model being trained, on one device or by one rank of several. The constructor requests all
// long-lived memory; within the phases "step" (or "micro" and "update"), "evaluate" and "decode",
// memory comes from the plan. The queue's host() holds micro-batches on their way to a GPU, the
// state of a paged optimizer, and the copy of the state to save from.
class Trainer {
 public:
  // The ranks of `group` train one model together.
  Trainer(Queue& q, const TrainOptions& options, const Communicator& group = {});

  // Runs the program on `sim` to find the memory that a Trainer with these options needs.
  static RunPlan plan(const TrainOptions& options);

  // Runs the schedules of a step, an evaluation and decoding with the largest batch, so that every
  // memory request happens once. A queue on `sim` needs this before steps.
  void rehearse();

  // Runs one optimizer step, number `step` of the run (from 0), over the micro-batches of `data`. A
  // loss or gradient that is not finite never changes a weight: the step throws Fault::usage,
  // naming the samples (the run adds the advice), or is skipped if the options say so, or if in f16
  // a lower loss scale may help. Throws NotFiniteUpdate if the update itself overflowed. A step
  // without targets changes nothing: no decay, no moment, no step count.
  //
  // `following` is the StepBatches that `data` belongs to. If a GPU copies batches ahead, the first
  // micro-batch of the next step is sent during this step; it is neither consumed nor counted now.
  // `meanwhile` is called once, when all work of the step is queued and a GPU is busy with it.
  StepResult step(MicroBatches& data, int64_t step, StepBatches* following = nullptr,
                  const std::function<void()>& meanwhile = {});

  // Forward and backward of the first micro-batch of `data` (of each rank, its only one), without
  // an update: weights and moments do not change.
  struct Probe {
    double loss = 0, grad_norm = 0;
    bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
  };
  Probe probe(MicroBatches& data);
  // The same over all micro-batches of `data`, as step `step` of the run, without a loss scale.
  // `look` is called while the gradients of the step exist; it must not request memory of the
  // queue.
  Probe try_step(MicroBatches& data, int64_t step, const std::function<void()>& look);

  // Evaluates the micro-batches of a started step.
  Evaluation evaluate(MicroBatches& data);

  Parameters& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  const Parts& model() const { return parts_; }
  const Pipeline* pipeline() const { return pipeline_ ? &*pipeline_ : nullptr; }
  LossScale& loss_scale() { return loss_scale_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  Decoder* decoder() { return decoder_.get(); }
  Snapshot* snapshot() { return snapshot_.get(); }
  Queue& queue() { return q_; }

 private:
  // Views of `results_`: the sum of the losses, and the not-finite flag of Optimizer::update.
  Tensor loss() const { return results_->rows(0, 1); }
  Tensor update_flag() const { return results_->rows(1, 1); }
  void pass_over(StepResult& result, MicroBatches& data, int64_t step);
  // Runs one step: forward and backward of each micro-batch in a phase "micro", then
  // `finish` in a phase "update"; all in one phase "step" if a step is one micro-batch. Of a
  // pipeline, the passes of several micro-batches take turns. `source` has the micro-batches. The
  // gradients are those of the mean loss over `targets` targets, times `loss_scale`.
  template <class Source, class Finish>
  void run_step(int64_t step, int64_t micro_batches, int64_t targets, double loss_scale,
                const Source& source, const Finish& finish);
  void begin(int64_t step, int64_t targets, double loss_scale);
  void train_micro_batch(const Batch& batch);
  std::vector<std::unique_ptr<Transformer>> make_pieces();
  int64_t tensor_bytes() const;
  Pipeline::Step pipeline_step(int64_t micro_batches) const;
  // One micro-batch in a phase of this name. A batch without tokens: this rank has none.
  void run_micro_batch(const Batch& batch, int64_t micro, int64_t count);
  void update(double lr);
  // Waits for loss, norm and the update's flag, and handles values that are not finite.
  void learn_result(StepResult& result, const MicroBatches& data, int64_t step);
  void copy_ahead(MicroBatches& data);
  std::optional<StepKey> key() const;  // of dropout, if any

  Queue& q_;
  TrainOptions options_;
  ModelSpec spec_;
  Parameters params_;
  Buffer tensor_room_;  // of the ranks that share each layer
  std::vector<std::unique_ptr<Transformer>> pieces_;
  Parts parts_;
  std::optional<Pipeline> pipeline_;  // of several stages
  Transformer::Kept kept_;
  Optimizer optimizer_;
  GradientClip clip_;
  LossScale loss_scale_;
  DeviceBatch batch_;
  Buffer results_;  // one buffer, so that the host fetches both in one copy
  Buffer scale_;
  Buffer all_flags_;  // the update's flags of all ranks
  Buffer key_;        // of dropout: a RandomKey's words
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Snapshot> snapshot_;
};

}  // namespace capstan
