#pragma once

#include <vector>

#include "model/block.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/scalar.h"

namespace capstan {

// Consecutive blocks [first, end) of a model. The stage with block 0 embeds the ids; the stage with
// the last block has the final norm, the head and the loss.
struct Stage {
  int first = 0, end = 0;
};

// A Llama-family model, or one stage of it. Forward and backward are explicit schedules of ops over
// buffers of the queue's arena, without an autograd tape.
//
// The caller wraps calls in a phase of the arena. A Transformer belongs to one thread.
class Transformer {
 public:
  // Creates the RoPE tables for positions below `positions`. Throws Fault::usage for fp8-mixed with
  // frozen weights.
  Transformer(Queue& q, Parameters& params, const Recomputation& recompute, int64_t positions)
      : Transformer(q, params, recompute, positions,
                    {0, static_cast<int>(params.spec().config.layers)}) {}
  Transformer(Queue& q, Parameters& params, const Recomputation& recompute, int64_t positions,
              Stage stage);

  Parameters& params() const { return params_; }
  const ModelConfig& config() const { return params_.spec().config; }
  int64_t positions() const { return rope_cos_->dim(0); }
  // Tokens of the residual stream on this rank, while it trains.
  int64_t share_of(int64_t tokens) const { return tokens_.share_of(tokens); }
  const Stage& stage() const { return stage_; }
  bool is_first() const { return stage_.first == 0; }
  bool is_last() const { return stage_.end == config().layers; }

 private:
  struct Top {  // activations of the final norm
    Buffer x_Sh, norm_Sh, rstd_S;
  };

 public:
  // Activations that one micro-batch keeps from its forward to its backward pass. Each micro-batch
  // in flight has its own; the backward pass empties it.
  class Kept {
    friend class Transformer;
    std::vector<BlockActivations> blocks;
    Top top;
    std::optional<StepKey> key;
    std::vector<LaterProducts> later;  // by block
  };
  Kept make_kept() const;

  // The forward pass of one micro-batch. `in` is this rank's tokens of the residual stream [S, h]
  // from the previous stage; the first stage has none. Returns the residual stream for the next
  // stage; the last stage returns nothing. `key` is for the adapters' dropout, and required if
  // there is any.
  Buffer forward(Queue& q, const Batch& batch, Kept& kept, Buffer in = {},
                 const std::optional<StepKey>& key = {});

  // The backward pass of that micro-batch: adds the gradients of scale * loss to the parameters'
  // gradients. The last stage adds the sum of the micro-batch's losses to `loss` (one f64); other
  // stages receive the gradient at their output. Returns the gradient at the stage's input, empty
  // if nothing below is trained. Each micro-batch in flight has its own `kept`.
  //
  // Weights::later leaves the gradients of the blocks' weights to backward_weights, which needs
  // neither the batch nor another stage: it may come at any time, in the order of the
  // micro-batches.
  enum class Weights : uint8_t { now, later };
  Buffer backward(Queue& q, const Batch& batch, Kept& kept, const Scalar& scale, Tensor loss,
                  Buffer d_out = {}, Weights weights = Weights::now);
  void backward_weights(Queue& q, Kept& kept);

  // The passes of a rank that has no micro-batch while others of its group have one: takes part in
  // what the group does for each unit, and adds nothing to loss and gradients.
  void idle_forward(Queue& q);
  void idle_backward(Queue& q, Weights weights = Weights::now);
  void idle_backward_weights(Queue& q);
  // Whether the backward pass of this stage does anything, and whether it goes on below it.
  bool trains() const { return is_last() || reached(blocks_.size() - 1); }
  bool sends_gradients() const { return !is_first() && lowest_unit_ <= stage_.first; }
  bool receives_gradients() const { return !is_last() && lowest_unit_ <= stage_.end; }

  // The forward pass alone, which keeps no activations; in the last stage adds the sum of the
  // losses to `loss`. `in` and the result as in forward().
  Buffer evaluate(Queue& q, const Batch& batch, Tensor loss, Buffer in = {});

  // All logits (any floating type): for tests and for comparing models. Requires a single stage.
  void logits(Queue& q, const Batch& batch, Tensor logits_TV);

  // Decoding: runs the tokens of `batch` (one document, positions starting at caches[…].start)
  // through the stage and appends their keys and values to the caches, one per layer. The last
  // stage writes the last token's logits, of this rank's share of the vocabulary. `in` and the
  // result as in forward(), but of all tokens on every rank.
  Buffer decode(Queue& q, const Batch& batch, const std::vector<LayerCache>& caches,
                Tensor logits_1V, Buffer in = {});

 private:
  // How a forward pass runs: decoding caches, and whether a backward pass follows.
  struct Mode {
    const std::vector<LayerCache>* caches = nullptr;
    bool keep = false;
  };
  // Runs the blocks, then the final norm (into kept.top, with the last unit acquired) or, if a
  // stage follows, the sum of the residual stream for it.
  Buffer run_blocks(Queue& q, const Batch& batch, Kept& kept, Buffer in, const Mode& mode);
  // A pass up to the head, without a backward pass. In the last stage, `head(top)` follows.
  template <class Head>
  Buffer infer(Queue& q, const Batch& batch, Buffer in, const std::vector<LayerCache>* caches,
               const Head& head);
  int first_unit() const { return is_first() ? 0 : stage_.first + 1; }
  int last_unit() const { return is_last() ? stage_.end + 1 : stage_.end; }
  // From the loss to the gradient of the residual stream; empty if nothing below the head is
  // trained.
  Buffer head_backward(Queue& q, const Batch& batch, const Kept& kept, const Scalar& scale,
                       Tensor loss);
  // Whether the backward pass reaches the block (index within the stage).
  bool reached(size_t block) const {
    return stage_.first + static_cast<int>(block) + 1 >= lowest_unit_;
  }
  // Releases activations that the backward pass recomputes or does not reach.
  void drop(Kept& kept, size_t block);
  void complete_tied(Queue& q);
  void idle_unit(Queue& q, int unit);
  void embed(Queue& q, const Batch& batch, BlockActivations& first);
  void embed_backward(Queue& q, const Batch& batch, const Tensor& d_Sh);
  void final_norm(Queue& q, Kept& kept, const Tensor& delta, const Tensor& residual);

  // The head's rows on this rank.
  HeadRows head_rows(Queue& q) const;
  EmbeddingRows embedding_rows() const;
  SplitTokens::Form form_of(const Mode& mode) const;

  Parameters& params_;
  Recomputation recompute_;
  Stage stage_;
  SplitTokens tokens_;
  LinearMap head_;
  int lowest_unit_;  // the first with trainable parameters
  bool fp8_;         // the blocks' linear maps use FP8 products
  Buffer rope_cos_, rope_sin_;
  std::vector<Block> blocks_;
  Kept passing_;  // for passes that keep no activations
};

}  // namespace capstan
