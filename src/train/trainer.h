#pragma once

#include <memory>

#include "data/micro_batches.h"
#include "model/decoder.h"
#include "model/transformer.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace capstan {

// The largest micro-batch that can come: what memory is planned for.
struct BatchLimits {
  int64_t tokens = 0;  // padding included
  int64_t documents = 0;
  int64_t longest = 0;  // tokens of one document

  void include(const BatchLimits& other);
};

// Everything that decides what a training run computes and what it needs.
struct TrainOptions {
  ModelConfig model;
  Precision precision = Precision::f32_true;
  Recompute recompute = Recompute::none;
  BatchLimits limits;
  bool single_micro_batch = false;  // a step is one micro-batch: gradients need not outlive it
  OptimizerOptions optimizer;
  Decay decay = Decay::all;
  Schedule schedule;
  double max_norm = 0;           // 0: no clipping
  int64_t sample_positions = 0;  // room to generate samples during the run; 0: none
};

struct StepResult {
  double loss = 0;       // mean over the targets of the whole global batch
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // with padding
  int64_t targets = 0;
};

// A model being trained on one device. All memory is taken in the constructor's requests and,
// within the phases "step" (or "micro" and "update"), "evaluate" and "decode", from the plan.
class Trainer {
 public:
  Trainer(Queue& q, const TrainOptions& options);

  // The program run on `sim`: what a Trainer with these options will ask for.
  static MemoryPlan plan(const TrainOptions& options);

  // One optimizer step over the micro-batches of a step that was started. A loss or gradient that
  // is not finite throws Fault::usage before any weight is touched, naming the samples.
  StepResult step(MicroBatches& data);

  // Mean loss over the micro-batches of a step that was started; 0 if nothing counts.
  struct Evaluation {
    double loss_sum = 0;
    int64_t targets = 0;
    double mean() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0; }
  };
  Evaluation evaluate(MicroBatches& data);

  Parameters& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  Transformer& model() { return model_; }
  Decoder* decoder() { return decoder_.get(); }
  Queue& queue() { return q_; }

 private:
  void rehearse();  // makes every request once, at its largest
  Batch upload(const HostBatch& host);
  Batch view(int64_t tokens, int64_t documents, int64_t longest) const;
  // Checks that loss and gradients are finite, then moves the weights; returns the norm.
  double update(double lr, double loss_sum, const MicroBatches* data);

  Queue& q_;
  TrainOptions options_;
  Parameters params_;
  Transformer model_;
  Optimizer optimizer_;
  GradientClip clip_;
  Buffer ids_, labels_, positions_, starts_, loss_;
  std::unique_ptr<Decoder> decoder_;
};

// The largest micro-batch that `micro_batch` samples of the dataset can make.
BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options);

}  // namespace capstan
