#pragma once

#include <vector>

#include "model/block.h"
#include "ops/scalar.h"

namespace capstan {

// A Llama-family model: embedding, blocks, norm, head. Forward and backward are explicit schedules
// of ops over buffers of the queue's arena; nothing is recorded while they run.
//
// The caller wraps calls in a phase of the arena. A Transformer belongs to one thread.
class Transformer {
 public:
  // Makes rope's tables for positions below `positions`, and fills them. Throws Fault::usage for
  // fp8-mixed where some weights are frozen.
  Transformer(Queue& q, Parameters& params, const Recomputation& recompute, int64_t positions);

  Parameters& params() const { return params_; }
  const ModelConfig& config() const { return params_.spec().config; }
  int64_t positions() const { return rope_cos_->dim(0); }

  // Forward and backward of one micro-batch: adds the sum of its losses to `loss` (one f64) and the
  // gradients of scale * loss to the parameters' gradients. `key` is that of the adapters' dropout;
  // a model that has some needs one.
  void train(Queue& q, const Batch& batch, const Scalar& scale, Tensor loss,
             const std::optional<StepKey>& key = {});

  // The loss alone; keeps nothing.
  void evaluate(Queue& q, const Batch& batch, Tensor loss);

  // All logits (any floating type): for tests and for comparing models.
  void logits(Queue& q, const Batch& batch, Tensor logits_TV);

  // Decoding: runs the tokens of `batch` (one document, positions from caches[…].start on) through
  // the model, adding their keys and values to the caches, one per layer; writes the last token's
  // logits.
  void decode(Queue& q, const Batch& batch, const std::vector<LayerCache>& caches,
              Tensor logits_1V);

 private:
  struct Top {  // what the last norm makes
    Buffer x_Th, norm_Th, rstd_T;
  };

  // Runs all blocks; with `keep` their activations stay in kept_ for the backward pass.
  Top forward(Queue& q, const Batch& batch, const std::vector<LayerCache>* caches, bool keep,
              const std::optional<StepKey>& key = {});
  // From the loss down to the residual stream; absent where nothing below the head is trained.
  Buffer head_backward(Queue& q, const Batch& batch, const Top& top, const Scalar& scale,
                       Tensor loss, const std::optional<StepKey>& key);
  // Whether the backward pass comes to the block.
  bool reached(size_t block) const { return static_cast<int>(block) + 1 >= lowest_unit_; }
  // Releases what the backward pass makes again, or does not come to.
  void drop(size_t block);
  void embed(Queue& q, const Batch& batch, BlockActivations& first);

  Parameters& params_;
  Recomputation recompute_;
  LinearMap head_;
  int lowest_unit_;  // the first with something to train
  bool fp8_;         // the blocks' linear maps multiply in FP8
  Buffer rope_cos_, rope_sin_;
  std::vector<Block> blocks_;
  std::vector<BlockActivations> kept_;
};

}  // namespace capstan
