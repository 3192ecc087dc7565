#pragma once

#include "bench/op_timer.h"
#include "bench/sizes.h"
#include "model/parameters.h"

// The ops that `capstan bench` times.
namespace capstan {

// A type of numbers: products of f32 may be rounded to TF32, and those of bf16 to FP8.
struct NumberType {
  const char* name;
  DType type;
  bool tf32 = false, fp8 = false;
};
// That a step is trained in.
Precision precision_of(const NumberType& type);

// [tokens, inputs] times [outputs, inputs] transposed; and both gradients of it.
OpSetup product(const NumberType& type, int64_t tokens, int64_t outputs, int64_t inputs);
OpSetup product_backward(const NumberType& type, int64_t tokens, int64_t outputs, int64_t inputs);
OpSetup head(DType type, const BenchSizes& sizes);  // forward and backward
OpSetup attend(DType type, const BenchSizes& sizes);
OpSetup attend_backward(DType type, const BenchSizes& sizes);
OpSetup between_products(DType type, const BenchSizes& sizes);  // norms, swiglu, rope
OpSetup update(const NumberType& type, const BenchSizes& sizes);

inline constexpr int kTinyOps = 1000;
OpSetup tiny_ops();  // so many in a row

enum class Way { within, to_device, to_host };
OpSetup copying(int64_t bytes, Way way);

}  // namespace capstan
