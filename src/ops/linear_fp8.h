#pragma once

#include "ops/linear.h"

// The products of ops/linear.h with 8-bit factors (base/fp8.h) and f32 sums.
namespace capstan {

// A factor m becomes code / scale, with one scale per tensor:
//
//   scale = fp8_scale(format, max |m|),   code[i] = round_to(format, m[i] * scale),
//
// all in f32. Forward values are e4m3; gradients are e5m2, since they need range more than
// precision. A factor with a NaN or an infinity becomes NaN as a whole, and so do its products.
//
// The result is Σ code_a code_b / (scale_a scale_b), rounded once to its type (on cuda once more if
// b has another type than y). On cuda, tensor cores accumulate with about 13 bits: for y all terms,
// for dx and dw some terms at a time, with these partial sums added in f32.
//
// If O or I is not a multiple of 16, as such products need on cuda, or there are no tokens, the
// products are those of ops/linear.h, on every device, and amax is meaningless. y, dx, dw and w are
// contiguous; x and dy may have row strides. On cuda they need a GPU of compute capability 8.9 or
// above: Fault::device on others.

// y = x wᵀ + b, x and w in e4m3. b may be absent and is not rounded. amax (f32) receives max |x|
// and max |w|, not finite if they are not.
void linear_fp8(Queue& q, Tensor y_TO, Tensor x_TI, Tensor w_OI, Tensor b_O, Tensor amax_2);

// dw = dyᵀ x or dw += dyᵀ x, then dx = dy w; db += Σ_t dy[t,:]. dy is in e5m2 for both products, x
// and w in e4m3; the sum for db uses the unrounded dy. amax is the result of linear_fp8 for x and
// w, so the maxima are not computed again. dx and db may be absent; dx may alias x.
void linear_fp8_backward(Queue& q, Tensor dx_TI, Tensor dw_OI, Tensor db_O, Tensor dy_TO,
                         Tensor x_TI, Tensor w_OI, Tensor amax_2, Write mode);

}  // namespace capstan
