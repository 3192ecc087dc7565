#pragma once

#include <optional>
#include <span>

#include "base/rng.h"
#include "tensor/queue.h"

namespace capstan {

// Where the values of a part of a tensor are in the whole tensor, for random draws: from `first`
// on, or, of some columns of a matrix, `width` values from there and then `width` values of every
// further row of `columns` values. All are multiples of 8, so that groups of 8 values that share a
// draw stay together.
struct RoundingPlace {
  int64_t first = 0;
  int64_t width = 0, columns = 0;  // 0, or equal: consecutive values
  int64_t skipped = 0;  // values of the part before the first that is given; with columns only

  constexpr int64_t of(int64_t i) const {
    const int64_t at = skipped + i;
    return width == columns ? first + at : first + at + row_of(at) * (columns - width);
  }
  // How many values from i on are consecutive in the whole tensor, at most `limit`.
  constexpr int64_t run(int64_t i, int64_t limit) const {
    if (width == columns) return limit;
    const int64_t left = width - (skipped + i) % width;
    return left < limit ? left : limit;
  }

 private:
  // at / width, by groups of 8, of which there are fewer than 2^32: in 64 bits the division would
  // take so many registers of a GPU that consecutive values became slower, too.
  constexpr int64_t row_of(int64_t at) const {
    return static_cast<uint32_t>(at / 8) / static_cast<uint32_t>(width / 8);
  }
};

// One parameter's tensors. Types may differ: in bf16-true all are bf16; bf16-mixed has an f32
// master, gradient and moments with a bf16 weight. bf16 and f16 do not meet. Arithmetic is f32.
struct OptimizerOperands {
  Tensor weight;  // the copy that the model computes with; rewritten
  Tensor master;  // the weight in full precision, or absent: then `weight` is the only copy
  Tensor grad;    // read
  Tensor m, v;    // moments; v is absent for SGD, m too without momentum
  // One f32 factor for all gradients (clipping). NaN skips the update and leaves everything
  // unchanged: the step was not finite, and the host need not wait to find out.
  Tensor grad_scale;
  // Rounding of a bf16 weight without a master: to nearest, or with these draws stochastically, to
  // the bf16 below or above with probabilities that preserve the mean. Value i uses the 16 bits
  // rounding.half(place.of(i)): they are added to the f32, whose lower half is then cut off.
  // Equal f32 give equal bits on every device. A shard says where its values are in the whole
  // tensor, and is rounded as part of the whole.
  std::optional<Rng> rounding = {};
  RoundingPlace place = {};
};

// Every update takes `not_finite`, one f64 that may be absent: it becomes 1 if a value that the
// update stores (of a weight, its master, a moment or a scale) is not finite in its stored type;
// otherwise it is unchanged. An f32 of (2 - 2^-8) 2^127 or more may count, since it becomes
// infinite in bf16.
inline constexpr uint32_t kNotFiniteBits = 0x7f7f8000;      // bits of the smallest such f32
inline constexpr uint32_t kNotFiniteHalfBits = 0x477ff000;  // 65520, infinite in f16

struct AdamWStep {
  float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0.01f;
  int64_t step = 1;  // from 1
};

// g = grad * grad_scale;  w -= lr * weight_decay * w;
// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)      (as torch.optim.AdamW)
void adamw(Queue& q, const OptimizerOperands& p, const AdamWStep& s);

// The same for many parameters, bit for bit like one call for each; on cuda in a few launches.
struct AdamWParameter {
  OptimizerOperands operands;
  AdamWStep step;
};
void adamw(Queue& q, std::span<const AdamWParameter> all, Tensor not_finite = {});

// AdamW with moments in 8 bits, as in bitsandbytes' AdamW8bit. p.m and p.v are u8 [weight's shape];
// the values of a tensor, row after row, form blocks of 256 (the last may be shorter), and `absmax`
// [ceil(n / 256)] has the largest magnitude of each block:
//   m[i] = signed[p.m[i]] * absmax.m[i / 256];  v[i] = unsigned[p.v[i]] * absmax.v[i / 256]
// with the 256 values of 8-bit dynamic quantization (Dettmers, 2015), from -0.993 to 1 and from 0
// to 1. Both moments are dequantized to f32, updated as in adamw, used for the weight, and then
// quantized: p.m[i] is the nearest to m[i] * (1 / absmax) in f32, ties to the lower (below 2^-100
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

// The same for many parameters, bit for bit like one call for each; on cuda in a few launches.
struct AdamW8bitParameter {
  OptimizerOperands operands;
  MomentScales absmax;
  AdamWStep step;
};
void adamw8bit(Queue& q, std::span<const AdamW8bitParameter> all, Tensor not_finite = {});

struct SgdStep {
  float lr = 1e-3f, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  int64_t step = 1;  // from 1; the first step sets the momentum to the gradient
};

// g = grad * grad_scale + weight_decay * w;  m = momentum m + (1 - dampening) g;
// w -= lr * (nesterov ? g + momentum m : momentum ? m : g)                   (as torch.optim.SGD)
void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s, Tensor not_finite = {});

// sum[0] += Σ x^2, one f64. Blocks of fixed size are summed in a fixed order, for any number of
// threads.
void sum_squares(Queue& q, Tensor sum, Tensor x);
// … over all of these. On cuda in a few launches, and in another order than one call for each.
void sum_squares(Queue& q, Tensor sum, std::span<const Tensor> all);

// The same in two steps, for tensors that several devices have: the partial sums of each tensor,
// one after the other; and sum[0] += all of them, with the bits of one call of sum_squares for all
// tensors. A tensor of n values has square_partials(device, n) of them.
int64_t square_partials(Device device, int64_t n);
void partial_squares(Queue& q, Tensor partials, std::span<const Tensor> all);
void add_partials(Queue& q, Tensor sum, Tensor partials);

// scale[0] (f32) = min(1, max_norm / (norm + 1e-6)) / times, as torch's clip_grad_norm_, where the
// gradients are `times` (a power of two) as large as they should be, and norm = sqrt(sum[0]) /
// times; 1 / times if max_norm is infinite. NaN if the sum or the loss (one f64; may be absent) is
// not finite.
void clip_scale(Queue& q, Tensor scale, Tensor sum, float max_norm, Tensor loss = {},
                double times = 1);

}  // namespace capstan
