#pragma once

#include "tensor/queue.h"

namespace capstan {

enum class Rotation : bool { forward, back };

// Rotates each head of x, in place, by the angles of its token's position:
//   x[t,h,i]       ← x[t,h,i] * cos[p,i] - x[t,h,i+D/2] * sin[p,i]
//   x[t,h,i+D/2]   ← x[t,h,i+D/2] * cos[p,i] + x[t,h,i] * sin[p,i],   p = positions[t], i < D/2
// (Hugging Face's pairing: first half with second half). Rotation::back rotates by the negative
// angles: the backward pass. x may have strides in t; cos and sin are f32; D is even.
void rope(Queue& q, Tensor x_THD, Tensor cos_PD, Tensor sin_PD, Tensor positions_T,
          Rotation rotation);

// The angles that tokens were rotated by.
struct RopeAngles {
  Tensor cos_PD, sin_PD, positions_T;

  explicit operator bool() const { return bool{positions_T}; }
};

}  // namespace capstan
