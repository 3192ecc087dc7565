#pragma once

#include "bench/op_timer.h"
#include "bench/sizes.h"
#include "model/parameters.h"

// The ops that `capstan bench` times.
namespace capstan {

// A number type: f32 products may use TF32, and bf16 products FP8.
struct NumberType {
  const char* name;
  DType type;
  bool tf32 = false, fp8 = false;
};
// The precision of a training step.
Precision precision_of(const NumberType& type);

// [tokens, inputs] times the transpose of [outputs, inputs]; and both of its gradients.
OpSetup product(const NumberType& type, int64_t tokens, int64_t outputs, int64_t inputs);
OpSetup product_backward(const NumberType& type, int64_t tokens, int64_t outputs, int64_t inputs);
OpSetup head(DType type, const BenchSizes& sizes);  // forward and backward
OpSetup attend(DType type, const BenchSizes& sizes, const Documents& documents);
OpSetup attend_backward(DType type, const BenchSizes& sizes, const Documents& documents);
OpSetup between_products(DType type, const BenchSizes& sizes);  // norms, swiglu, rope
OpSetup update(const NumberType& type, const BenchSizes& sizes);
// With f32 moments in host memory: 16 bytes for each weight cross the bus, half in each direction.
OpSetup update_over_the_bus(const BenchSizes& sizes);

inline constexpr int kTinyOps = 1000;
OpSetup tiny_ops();  // this many in a row

enum class Way { within, to_device, to_host };
OpSetup copying(int64_t bytes, Way way);

}  // namespace capstan
