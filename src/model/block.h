#pragma once

#include "model/batch.h"
#include "model/linear_map.h"
#include "model/recompute.h"
#include "model/split_heads.h"
#include "model/split_tokens.h"

namespace capstan {

// RoPE tables on the device.
struct RopeTensors {
  Tensor cos_PD, sin_PD;
};

// Keys and values of one layer while decoding, and the position of the first new token.
struct LayerCache {
  Tensor k_CW, v_CW;  // W = key heads * head size
  int64_t start = 0;
};

// Activations of one block from the forward pass. Empty members have been consumed or dropped. For
// T tokens, of which this rank has S while it shares each layer with others, h channels, heads of
// size d:
struct BlockActivations {
  Buffer x_Sh;                  // the residual stream at the block's input
  Buffer norm1_Sh, rstd1_S;     // its norm
  Buffer qkv_TW;                // queries, keys and values; after rope without qk-norm
  Buffer qk_TW, qk_rstd_TH;     // with qk-norm: queries and keys after norm and rope
  Buffer heads_CW;              // the same of all tokens, of ranks that share each sequence
  Buffer attn_TW, lse_HT;       // the heads' outputs and log-sum-exps
  Buffer mid_Sh;                // the residual stream between attention and MLP
  Buffer norm2_Sh, rstd2_S;     // its norm
  Buffer gate_up_TF, inner_TF;  // F = 2 f, and after SwiGLU f
  Buffer qkv_lora_TR, o_lora_TR, gate_up_lora_TR, down_lora_TR;  // the adapters' `inner`
  std::optional<StepKey> dropout;  // key of the adapters' dropout masks, while training
  Buffer amax_42;  // with FP8 products: maxima of each linear map, kept by every policy
  SplitTokens::Form form = SplitTokens::Form::shares;

  void drop(Recompute policy);  // drops activations that the policy does not keep
};

// Gradients of weights that are to be computed after the backward pass that needs their operands.
struct LaterProduct {
  const LinearMap* map = nullptr;
  Buffer dy, x;
};
using LaterProducts = std::vector<LaterProduct>;

// One transformer block, as a schedule of ops:
//
//   x = residual + delta;           h = x + o_proj(attention(rope(qkv_proj(norm(x)))))
//   delta' = down_proj(swiglu(gate_up_proj(norm(h))));        the next block's input is h + delta'
//
// The next norm computes the sum at the end, fused. A Block holds only references; the caller owns
// the activations.
class Block {
 public:
  Block(Parameters& params, int layer, const RopeTensors& rope, const SplitTokens& tokens,
        const SplitHeads& heads);

  // Sets x to residual + delta and computes norm1; norm_input computes norm1 from an x already set.
  void enter(Queue& q, BlockActivations& a, Tensor delta, Tensor residual) const;
  void norm_input(Queue& q, BlockActivations& a) const;
  // From norm1 to attention's output; with a cache, appends the new keys and values and attends to
  // all of it.
  void attention_half(Queue& q, BlockActivations& a, const Batch& batch,
                      const LayerCache* cache) const;
  // From there to inner, and to the block's output, which it makes in `out`, if given.
  void mlp_half(Queue& q, BlockActivations& a, Buffer* out) const;

  // Releases activations that the backward pass recomputes under the policy, or does not need.
  void drop(BlockActivations& a, Recompute policy) const;

  // Turns the gradient at the block's output into the one at its input, in place, and adds to the
  // parameters' gradients. Stops early if nothing below is trained. Recomputes activations missing
  // in `a`; leaves `a` empty. With `later`, the gradients of the linear maps' weights are left to
  // backward_weights: meanwhile their operands are there.
  void backward(Queue& q, BlockActivations& a, const Batch& batch, Tensor d_residual,
                LaterProducts* later = nullptr) const;
  void backward_weights(Queue& q, LaterProducts& later) const;

 private:
  using Part = SplitTokens::Part;
  // Gradients of weights that are not computed with those of inputs: at any time afterwards, or
  // here, while ranks exchange something.
  struct Deferred {
    LaterProducts* products = nullptr;
    bool here = false;
    void run_beside(Queue& q, size_t left = 0) const {
      if (here) run_products(q, *products, left);
    }
  };
  void attend(Queue& q, BlockActivations& a, const Batch& batch) const;
  void attend_cached(Queue& q, BlockActivations& a, const LayerCache& cache) const;
  void attend_backward(Queue& q, BlockActivations& a, const Batch& batch, const Tensor& d_attn_TW,
                       const Tensor& d_qkv_TW) const;
  // Among ranks that share the layer, the norm that is the input of `map` is gathered once more for
  // the gradient of its weights, while the products before it in the backward pass run. `again`
  // computes the norm if it was not kept.
  template <class Again>
  SplitTokens::Gathering gather_again(Queue& q, const LinearMap& map, Buffer& norm_Sh,
                                      const char* name, const Again& again) const;
  // The backward pass of a map with all inputs: its input, the norm, becomes its gradient if that
  // is reached. With `later`, dy is taken.
  struct InputGradient {
    bool reached;
    const char* name;  // of a buffer
  };
  void backward_from(Queue& q, const LinearMap& map, Buffer& norm_Sh, Buffer& dy,
                     SplitTokens::Gathering input, const InputGradient& want,
                     const BlockActivations& a, Tensor inner, Tensor amax,
                     const Deferred& later) const;
  void mlp_backward(Queue& q, BlockActivations& a, Tensor d_residual, const Deferred& later) const;
  void attention_half_backward(Queue& q, BlockActivations& a, const Batch& batch, Tensor d_residual,
                               const Deferred& later) const;
  // Computes gradients of weights, the first ones first, until so many are left.
  static void run_products(Queue& q, LaterProducts& products, size_t left = 0);
  // Whether the gradient of a map's weight is left for later.
  static bool defers(const BlockActivations& a, const LinearMap& map, const Deferred& later) {
    return later.products != nullptr && map.trains_weight() && !a.amax_42;
  }
  Buffer copy_of(Queue& q, const Tensor& dy) const;
  struct Columns {  // queries, keys and values [T, …]
    Tensor q, k, v;
  };
  // Of a buffer with queries and keys, and one that has the values after both.
  Columns columns(const Tensor& qk_TW, const Tensor& qkv_TW) const;
  int64_t all_tokens(const BlockActivations& a) const;
  struct QkScales {  // of the per-head norm
    Tensor q_TH, k_TK;
  };
  QkScales qk_scales(const BlockActivations& a) const;
  void qk_norm_forward(Queue& q, BlockActivations& a) const;
  void qk_norm_backward(Queue& q, const BlockActivations& a, const Tensor& d_qkv_TW) const;
  enum class Map : uint8_t { qkv, o, gate_up, down };
  static Tensor amax(const BlockActivations& a, Map map);  // absent without FP8
  Buffer make(Queue& q, int64_t tokens, int64_t width, const char* name) const;
  Buffer make_f32(Queue& q, const Shape& shape, const char* name) const;

  struct Heads {
    Tensor q_THD, k_TKD, v_TKD;
  };
  Heads split(const Tensor& qkv_TW) const;          // views of the fused product
  Heads attended(const BlockActivations& a) const;  // inputs of attention
  Tensor rotated(const BlockActivations& a) const;  // its queries and keys together
  int64_t q_width() const { return heads_ * c_.head_dim; }
  int64_t kv_width() const { return kv_heads_ * c_.head_dim; }

  // Gradients that the backward pass must compute: those with a trainable parameter at or below
  // them.
  struct Reach {
    bool gate_up, middle, qkv, input;
  };
  Reach reach() const;

  Parameters& params_;
  const ModelConfig& c_;
  int64_t heads_, kv_heads_, inner_;  // of this rank
  const BlockIndex& at_;
  int unit_;
  LinearMap qkv_, o_, gate_up_, down_;
  Reach reach_;
  RopeTensors rope_;
  SplitTokens tokens_;
  SplitHeads split_heads_;
  float eps_, scale_;
};

}  // namespace capstan
