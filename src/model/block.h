#pragma once

#include "model/batch.h"
#include "model/linear_map.h"
#include "model/recompute.h"

namespace capstan {

// Angles of rope on the device.
struct RopeTensors {
  Tensor cos_PD, sin_PD;
};

// Keys and values of one layer while decoding, and the position of the first new token.
struct LayerCache {
  Tensor k_CW, v_CW;  // W = key heads * head size
  int64_t start = 0;
};

// What one block makes on its way forward. Members that are empty have been used up or dropped.
// For T tokens, h channels, heads of d:
struct BlockActivations {
  Buffer x_Th;                  // the residual stream at the block's input
  Buffer norm1_Th, rstd1_T;     // its norm
  Buffer qkv_TW;                // queries, keys and values; after rope without qk-norm
  Buffer qk_TW, qk_rstd_TH;     // with qk-norm: queries and keys after norm and rope
  Buffer attn_TW, lse_HT;       // the heads' outputs
  Buffer mid_Th;                // the residual stream between the halves
  Buffer norm2_Th, rstd2_T;     // its norm
  Buffer gate_up_TF, inner_TF;  // F = 2 f, and after SwiGLU f
  Buffer qkv_lora_TR, o_lora_TR, gate_up_lora_TR, down_lora_TR;  // the adapters' `inner`
  std::optional<StepKey> dropout;  // the key of the adapters' masks, while training
  Buffer amax_42;  // where the linear maps multiply in FP8: for each of them, kept by every policy

  void drop(Recompute policy);  // what the policy does not keep for the backward pass
};

// One transformer block, as a schedule of ops:
//
//   x = residual + delta;           h = x + o_proj(attention(rope(qkv_proj(norm(x)))))
//   delta' = down_proj(swiglu(gate_up_proj(norm(h))));        the next block's input is h + delta'
//
// The sum at the end is left to the next norm, which is fused with it. A Block holds no state but
// references; activations are the caller's.
class Block {
 public:
  Block(Parameters& params, int layer, const RopeTensors& rope);

  // x is set (by enter, or by hand) and norm1 made from it.
  void enter(Queue& q, BlockActivations& a, Tensor delta, Tensor residual) const;
  void norm_input(Queue& q, BlockActivations& a) const;
  // From norm1 to mid; with a cache, keys come from it and the new ones are added to it.
  void attention_half(Queue& q, BlockActivations& a, const Batch& batch,
                      const LayerCache* cache) const;
  // From mid to inner; `delta`, where wanted, gets the block's output.
  void mlp_half(Queue& q, BlockActivations& a, Tensor delta) const;

  // Releases what the backward pass makes again by the policy, or does not need.
  void drop(BlockActivations& a, Recompute policy) const;

  // Turns the gradient at the block's output into the one at its input, in place, and adds to the
  // parameters' gradients; where nothing below is trained it stops on the way. Recomputes what `a`
  // lacks; leaves `a` empty.
  void backward(Queue& q, BlockActivations& a, const Batch& batch, Tensor d_residual) const;

 private:
  void mlp_backward(Queue& q, BlockActivations& a, Tensor d_residual) const;
  void attention_half_backward(Queue& q, BlockActivations& a, const Batch& batch,
                               Tensor d_residual) const;
  struct QkScales {  // of the norm within heads
    Tensor q_TH, k_TK;
  };
  QkScales qk_scales(const BlockActivations& a) const;
  void qk_norm_forward(Queue& q, BlockActivations& a) const;
  void qk_norm_backward(Queue& q, const BlockActivations& a, const Tensor& d_qkv_TW) const;
  enum class Map : uint8_t { qkv, o, gate_up, down };
  static Tensor amax(const BlockActivations& a, Map map);  // absent where none is in FP8
  Buffer make(Queue& q, int64_t tokens, int64_t width, const char* name) const;
  Buffer make_f32(Queue& q, const Shape& shape, const char* name) const;

  struct Heads {
    Tensor q_THD, k_TKD, v_TKD;
  };
  Heads split(const Tensor& qkv_TW) const;          // views of the fused product
  Heads attended(const BlockActivations& a) const;  // what attention reads
  Tensor rotated(const BlockActivations& a) const;  // its queries and keys together

  // Which gradients the backward pass must reach: those with something to train at or below them.
  struct Reach {
    bool gate_up, middle, qkv, input;
  };
  Reach reach() const;

  Parameters& params_;
  const ModelConfig& c_;
  const BlockIndex& at_;
  int unit_;
  LinearMap qkv_, o_, gate_up_, down_;
  Reach reach_;
  RopeTensors rope_;
  float eps_, scale_;
};

}  // namespace capstan
