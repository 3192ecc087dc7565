#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/device.h"

namespace capstan {

// What one call of an op does at the least: arithmetic, and bytes that must move to and from memory
// when each operand is read once and each result written once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Ops whose speed has one cause. A machine has rates for each.
enum class OpKind : uint8_t {
  product,    // of matrices
  head,       // the products of the output head, with the softmax between them
  attention,  // forward
  attention_backward,
  elementwise,  // norms, rope, swiglu, casts: much memory, and some arithmetic
  optimizer,    // the update of the weights, the gradients' norm
  copy,         // nothing but memory
};
inline constexpr size_t kOpKinds = 7;
std::string_view name_of(OpKind kind);  // "product"

// The kind of the op that Queue::account knows by this name; none for a name that no op has.
std::optional<OpKind> kind_of(std::string_view op);

struct Rates {
  double flops_per_second = std::numeric_limits<double>::infinity();
  double bytes_per_second = std::numeric_limits<double>::infinity();
  std::optional<double> seconds_per_call = std::nullopt;  // else the machine's
  bool adds = false;  // arithmetic and bytes follow each other, as on a CPU; else they overlap
};

// The machine that a `sim` queue imitates. A call takes
//
//   factor * (seconds_per_call + max(flops / flops_per_second, bytes / bytes_per_second))
//
// with the rates of its op's kind, or those of the whole machine where the kind has none; with the
// sum in place of max where the rates add.
struct CostModel {
  std::string name = "an imaginary device";
  Device device = Device::cpu;  // whose scratch the ops ask for
  double flops_per_second = 1e12;
  double bytes_per_second = 1e11;
  double seconds_per_call = 0;
  double factor = 1;
  std::array<std::optional<Rates>, kOpKinds> kinds = {};  // by OpKind

  std::optional<Rates>& rates(OpKind kind) { return kinds[static_cast<size_t>(kind)]; }
  double seconds(std::string_view op, const Cost& cost) const;
};

}  // namespace capstan
