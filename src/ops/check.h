#pragma once

#include "ops/dropout_mask.h"

// Operand checks of the front ends. Each throws Fault::bug with the op, the operand, what was
// expected and what was found; the text is formatted only then, so a step does not touch the heap.
namespace capstan::check {

inline void shape(const char* op, const char* name, const Tensor& t, const Shape& expected) {
  if (t.shape() == expected) [[likely]]
    return;
  fail(Fault::bug, "{}: {} must be {}, but is {}", op, name, to_string(expected),
       t ? to_string(t.shape()) : "absent");
}

inline void contiguous(const char* op, const char* name, const Tensor& t) {
  if (t.contiguous()) [[likely]]
    return;
  fail(Fault::bug, "{}: {} {} must be contiguous, but has strides", op, name, t.shape());
}

inline void rank(const char* op, const char* name, const Tensor& t, int lowest, int highest) {
  require(t.rank() >= lowest && t.rank() <= highest, Fault::bug,
          "{}: {} must have {} to {} dimensions, but has {}", op, name, lowest, highest, t.rank());
}

inline void type(const char* op, const char* name, const Tensor& t, DType expected) {
  require(t.dtype() == expected, Fault::bug, "{}: {} must be {}, but is {}", op, name,
          name_of(expected), name_of(t.dtype()));
}

// f32, bf16 or f16: the types that ops compute with.
inline void floating(const char* op, const char* name, const Tensor& t) {
  require(is_floating(t.dtype()), Fault::bug, "{}: {} must be f32, bf16 or f16, but is {}", op,
          name, name_of(t.dtype()));
}

// An operand of known shape in such a type, with strides …
inline void strided(const char* op, const char* name, const Tensor& t, const Shape& expected) {
  shape(op, name, t, expected);
  floating(op, name, t);
}

// … or without.
inline void dense(const char* op, const char* name, const Tensor& t, const Shape& expected) {
  strided(op, name, t, expected);
  contiguous(op, name, t);
}

// A contiguous operand of known shape and type.
inline void exact(const char* op, const char* name, const Tensor& t, DType dtype,
                  const Shape& expected) {
  shape(op, name, t, expected);
  type(op, name, t, dtype);
  contiguous(op, name, t);
}

// A mask for the values of x [T, I].
inline void mask(const char* op, const DropoutMask& m, const Tensor& x_TI) {
  rank(op, "x", x_TI, 2, 2);
  require(m.p >= 0 && m.p < 1, Fault::bug, "{}: p must lie in [0, 1), but is {}", op, m.p);
  if (m.key.at) exact(op, "the key", m.key.at, DType::i32, {RandomKey::kWords});
  if (m.ordinals_T) exact(op, "ordinals", m.ordinals_T, DType::i32, {x_TI.dim(0)});
  require(m.first_column >= 0 && m.first_column + x_TI.dim(1) <= m.columns_of(x_TI), Fault::bug,
          "{}: columns {} to {} are not among the {} of the mask", op, m.first_column,
          m.first_column + x_TI.dim(1), m.columns_of(x_TI));
}

}  // namespace capstan::check
