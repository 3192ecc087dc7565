#pragma once

#include <optional>
#include <span>

#include "base/rng.h"
#include "tensor/queue.h"

namespace capstan {

// One parameter's tensors. Types may differ: bf16-true has all of them bf16, bf16-mixed has an f32
// master, gradient and moments beside a bf16 weight. Arithmetic is f32.
struct OptimizerOperands {
  Tensor weight;  // what the model computes with; rewritten
  Tensor master;  // the weight in full precision, or absent: then `weight` is all there is
  Tensor grad;    // read
  Tensor m, v;    // moments; v is absent for SGD, m too without momentum
  // One f32 that every gradient is multiplied by (clipping). NaN leaves all of it as it is: the
  // step was not finite, which the host need not know before it asks for the update.
  Tensor grad_scale;
  // How a bf16 weight without a master is rounded: to the nearest, or, with these draws, to the
  // bf16 below or above, the nearer the more often, so that the mean is what was computed. Value i
  // takes the 16 bits rounding.half(rounding_first + i): they are added to the f32, whose lower
  // half is then cut off. Equal f32 give equal bits on every device. So a part of a tensor, with
  // the number of its first value, is rounded as the whole is.
  std::optional<Rng> rounding = {};
  int64_t rounding_first = 0;  // a multiple of 8
};

// Every update takes `not_finite`, one f64 that may be absent: it becomes 1 where a value that the
// update stores (of a weight, its master, a moment or a scale) is not finite in the type that it is
// stored in, and stays as it is elsewhere. An f32 of (2 - 2^-8) 2^127 or more may count, since bf16
// makes infinity of it.
inline constexpr uint32_t kNotFiniteBits = 0x7f7f8000;  // of the least such f32

struct AdamWStep {
  float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0.01f;
  int64_t step = 1;  // counted from 1
};

// g = grad * grad_scale;  w -= lr * weight_decay * w;
// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)      (as torch.optim.AdamW)
void adamw(Queue& q, const OptimizerOperands& p, const AdamWStep& s);

// The same for many parameters, bit for bit as a call for each; on cuda in a few launches.
struct AdamWParameter {
  OptimizerOperands operands;
  AdamWStep step;
};
void adamw(Queue& q, std::span<const AdamWParameter> all, Tensor not_finite = {});

// AdamW whose moments are in 8 bits, as bitsandbytes' AdamW8bit keeps them. p.m and p.v are u8
// [weight's shape]; the values of a tensor, row after row, make blocks of 256, of which the last
// may be shorter, and each block b has its largest magnitude in `absmax` [ceil(n / 256)]:
//   m[i] = signed[p.m[i]] * absmax.m[i / 256];  v[i] = unsigned[p.v[i]] * absmax.v[i / 256]
// with the 256 values of 8-bit dynamic quantization (Dettmers, 2015), from -0.993 to 1 and from 0
// to 1. Both moments are widened to f32, updated as adamw does, used for the weight, and then
// rounded: p.m[i] is the nearest to m[i] * (1 / absmax) in f32, halfway the lower (below 2^-100
// both are multiplied by 2^100 first). Equal finite moments give equal codes on every device. A
// block of zeros has absmax 0 and the code of 0; zeros in all four tensors are the state before the
// first step.
//
// The result does not depend on the number of threads.
inline constexpr int64_t kAdamW8bitBlock = 256;
constexpr int64_t adamw8bit_blocks(int64_t n) {
  return (n + kAdamW8bitBlock - 1) / kAdamW8bitBlock;
}
struct MomentScales {
  Tensor m, v;  // f32
};
void adamw8bit(Queue& q, const OptimizerOperands& p, const MomentScales& absmax,
               const AdamWStep& s);

// The same for many parameters, bit for bit as a call for each; on cuda in a few launches.
struct AdamW8bitParameter {
  OptimizerOperands operands;
  MomentScales absmax;
  AdamWStep step;
};
void adamw8bit(Queue& q, std::span<const AdamW8bitParameter> all, Tensor not_finite = {});

struct SgdStep {
  float lr = 1e-3f, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  int64_t step = 1;  // counted from 1; the first step sets the momentum to the gradient
};

// g = grad * grad_scale + weight_decay * w;  m = momentum m + (1 - dampening) g;
// w -= lr * (nesterov ? g + momentum m : momentum ? m : g)                   (as torch.optim.SGD)
void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s, Tensor not_finite = {});

// sum[0] += Σ x^2, one f64. Blocks of fixed size are summed in a fixed order, whatever the threads.
void sum_squares(Queue& q, Tensor sum, Tensor x);
// … of all of these together. On cuda in a few launches, and in another order than a call for each.
void sum_squares(Queue& q, Tensor sum, std::span<const Tensor> all);

// scale[0] (f32) = min(1, max_norm / (sqrt(sum[0]) + 1e-6)), as torch's clip_grad_norm_; 1 when
// max_norm is infinite. NaN if the sum is not finite, or the loss (one f64; may be absent).
void clip_scale(Queue& q, Tensor scale, Tensor sum, float max_norm, Tensor loss = {});

}  // namespace capstan
