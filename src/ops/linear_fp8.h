#pragma once

#include "ops/linear.h"

// The products of ops/linear.h with factors in 8 bits (base/fp8.h) and sums in f32.
namespace capstan {

// A factor m becomes code / scale, with one scale for all of it:
//
//   scale = fp8_scale(format, max |m|),   code[i] = round_to(format, m[i] * scale),
//
// all in f32. Values of a forward pass are e4m3, gradients e5m2: they need range more than digits.
// A factor with a NaN or an infinity is NaN as a whole, and so are the products with it.
//
// The result is Σ code_a code_b / (scale_a scale_b), rounded once to its type (on cuda once more
// where b is added that is not of y's type). On cuda tensor cores add with about 13 binary digits:
// for y all of its terms, for dx and dw some of them at a time, whose sums are added in f32.
//
// Where O or I is no multiple of 16, which such products need on cuda, or there are no tokens, the
// products are those of ops/linear.h, on every device, and amax means nothing. y, dx, dw and w are
// contiguous; x and dy may have row strides. On cuda they need a GPU of compute capability 8.9 or
// above: Fault::device on others.

// y = x wᵀ + b, x and w in e4m3. b may be absent, and is not rounded. amax (f32) gets max |x| and
// max |w|, not finite where they are not.
void linear_fp8(Queue& q, Tensor y_TO, Tensor x_TI, Tensor w_OI, Tensor b_O, Tensor amax_2);

// dw = dyᵀ x or dw += dyᵀ x, then dx = dy w; db += Σ_t dy[t,:]. dy in e5m2, for both products, x
// and w in e4m3; in the sum for db dy is not rounded. amax is what linear_fp8 gave for x and w,
// which are not searched again. dx and db may be absent; dx may alias x.
void linear_fp8_backward(Queue& q, Tensor dx_TI, Tensor dw_OI, Tensor db_O, Tensor dy_TO,
                         Tensor x_TI, Tensor w_OI, Tensor amax_2, Write mode);

}  // namespace capstan
