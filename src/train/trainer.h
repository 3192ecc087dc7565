#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/training_checkpoint.h"
#include "data/batch/step_batches.h"
#include "infer/evaluation.h"
#include "model/decoder.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace capstan {

// Everything that decides what a training run computes and what it needs.
struct TrainOptions {
  Device device = Device::cpu;
  ModelConfig model;
  Precision precision = Precision::f32_true;
  bool tf32 = false;  // products of f32 matrices on cuda may round their factors
  Recomputation recompute;
  bool recompute_to_fit = false;  // fit_of (fit.h) chooses it
  BatchLimits limits;
  bool single_micro_batch = false;  // a step is one micro-batch: gradients need not outlive it
  OptimizerOptions optimizer;
  Decay decay = Decay::all;
  std::optional<LoraOptions> lora;     // train adapters beside a frozen model
  Quantize quantize = Quantize::none;  // of the frozen model
  uint64_t seed = 0;                   // of dropout
  Schedule schedule;
  double max_norm = 0;           // 0: no clipping
  bool skip_not_finite = false;  // leave a step out whose loss or gradients are not finite
  bool staging = false;  // room in host memory for a copy of the state, to save beside the training
  int64_t sample_positions = 0;  // room to generate samples during the run; 0: none
};

struct StepResult {
  double loss = 0;       // mean over the targets of the whole global batch
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // with padding
  int64_t padding = 0;
  int64_t targets = 0;
  int64_t micro_batches = 0;
  bool skipped = false;  // not finite, and left out: the weights are as before
  bool masked = false;   // no label counts: nothing was computed, and all is as before
};

// After an update there are weights or moments that are not finite: nothing of the trainer's state
// is worth keeping.
class NotFiniteUpdate : public Error {
 public:
  using Error::Error;
};

// A model being trained on one device. All memory is taken in the constructor's requests and,
// within the phases "step" (or "micro" and "update"), "evaluate" and "decode", from the plan. In
// the queue's host() are micro-batches on their way to a GPU, the state of a paged optimizer, and
// the copy of the state to save from.
class Trainer {
 public:
  Trainer(Queue& q, const TrainOptions& options);

  // The program run on `sim`: what a Trainer with these options will ask for.
  static RunPlan plan(const TrainOptions& options);

  // Runs the schedules of a step, of an evaluation and of decoding with the largest batch, so that
  // every request for memory is made once: what a queue on `sim` needs before steps.
  void rehearse();

  // One optimizer step, number `step` of the run (from 0), over the micro-batches that were
  // started. A loss or gradient that is not finite never reaches a weight: it throws Fault::usage,
  // naming the samples (what to do about them is for the run to say), or the step is left out if
  // the options say so. Throws NotFiniteUpdate where the update itself went beyond what the types
  // hold. A step without a label that counts changes nothing: no decay, no moment, no count.
  //
  // With `following`, of which `data` are this step's: where a GPU's batches are copied ahead, the
  // first micro-batch of the step after it is sent while this step's work is done. It stays the
  // first that is trained then, and nothing of it is counted now. `meanwhile` is called once, when
  // all the step's work is sent: a GPU is busy with it then.
  StepResult step(MicroBatches& data, int64_t step, StepBatches* following = nullptr,
                  const std::function<void()>& meanwhile = {});

  // Forward and backward of the first micro-batch that was started, without an update: weights and
  // moments stay as they are.
  struct Probe {
    double loss = 0, grad_norm = 0;
    bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
  };
  Probe probe(MicroBatches& data);

  // Of the micro-batches of a step that was started.
  Evaluation evaluate(MicroBatches& data);

  Parameters& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  Transformer& model() { return model_; }
  Decoder* decoder() { return decoder_.get(); }
  Snapshot* snapshot() { return snapshot_.get(); }
  Queue& queue() { return q_; }

 private:
  // Of `results_`: the sum of the losses, and what Optimizer::update tells.
  Tensor loss() const { return results_->rows(0, 1); }
  Tensor update_flag() const { return results_->rows(1, 1); }
  void pass_over(StepResult& result, MicroBatches& data, int64_t step);
  // The schedule of one step, written once. Forward and backward of each micro-batch in a phase
  // "micro", then `finish` in a phase "update"; all of it in one phase "step" where a step is one
  // micro-batch. `next` makes the micro-batches. The loss is the mean over so many targets.
  template <class Next, class Finish>
  void run_schedule(int64_t step, int64_t micro_batches, int64_t targets, const Next& next,
                    const Finish& finish);
  void begin(int64_t targets);
  void train_micro_batch(const Batch& batch, int64_t step, int64_t micro);
  void update(double lr);
  // Waits for loss, norm and the update's flag, and sees to it where something is not finite.
  void learn_result(StepResult& result, const MicroBatches& data, int64_t step);
  void copy_ahead(MicroBatches& data);
  std::optional<StepKey> key() const;  // of dropout, where there is some

  Queue& q_;
  TrainOptions options_;
  Parameters params_;
  Transformer model_;
  Transformer::Kept kept_;
  Optimizer optimizer_;
  GradientClip clip_;
  DeviceBatch batch_;
  Buffer results_;  // in one buffer, so that the host fetches them in one copy
  Buffer scale_;
  Buffer key_;  // of dropout: a RandomKey's words
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Snapshot> snapshot_;
};

}  // namespace capstan
