#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/device.h"

namespace capstan {

// The minimum work of one call of an op: arithmetic, and memory traffic if each operand is read
// once and each result written once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Kinds of ops that are limited by the same resource. A machine has rates for each.
enum class OpKind : uint8_t {
  product,    // matrix products
  head,       // the output head: its products and the softmax between them
  attention,  // forward
  attention_backward,
  elementwise,  // norms, rope, swiglu, casts: memory-bound, with some arithmetic
  optimizer,    // weight update, gradient norm
  copy,         // memory only
};
inline constexpr size_t kOpKinds = 7;
std::string_view name_of(OpKind kind);  // "product"

// What an op's front end calls itself in the account.
struct Op {
  const char* name;  // a literal
  OpKind kind;
};

struct Rates {
  double flops_per_second = std::numeric_limits<double>::infinity();
  double bytes_per_second = std::numeric_limits<double>::infinity();
  std::optional<double> seconds_per_call = std::nullopt;  // otherwise the machine's
  bool adds =
      false;  // time of arithmetic and of memory adds up, as on a CPU; otherwise they overlap
};

// The machine that a `sim` queue models. A call takes
//
//   factor * (seconds_per_call + max(flops / flops_per_second, bytes / bytes_per_second))
//
// with the rates of its op's kind, or the machine's if the kind has none; with the sum instead of
// max if the rates add.
struct CostModel {
  std::string name = "an imaginary device";
  Device device = Device::cpu;  // the device whose scratch the ops request
  double flops_per_second = 1e12;
  double bytes_per_second = 1e11;
  double seconds_per_call = 0;
  double factor = 1;
  std::array<std::optional<Rates>, kOpKinds> kinds = {};  // by OpKind

  std::optional<Rates>& rates(OpKind kind) { return kinds[static_cast<size_t>(kind)]; }
  double seconds(OpKind kind, const Cost& cost) const;
};

}  // namespace capstan
