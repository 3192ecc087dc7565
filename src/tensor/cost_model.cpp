#include "tensor/cost_model.h"

#include <algorithm>

namespace capstan {
namespace {

struct NamedOp {
  std::string_view name;
  OpKind kind;
};
constexpr NamedOp kOps[] = {
    {"linear", OpKind::product},
    {"linear_backward_data", OpKind::product},
    {"linear_backward_weight", OpKind::product},
    {"linear_fp8", OpKind::product},
    {"linear_fp8_backward", OpKind::product},
    {"head_loss", OpKind::head},
    {"head_loss_backward", OpKind::head},
    {"attention", OpKind::attention},
    {"attention_cached", OpKind::attention},
    {"attention_backward", OpKind::attention_backward},
    {"fill", OpKind::copy},
    {"cast", OpKind::elementwise},
    {"copy", OpKind::copy},
    {"fill_normal", OpKind::elementwise},
    {"fill_uniform", OpKind::elementwise},
    {"add", OpKind::elementwise},
    {"scale", OpKind::elementwise},
    {"dropout", OpKind::elementwise},
    {"embedding", OpKind::copy},
    {"embedding_backward", OpKind::elementwise},
    {"rmsnorm", OpKind::elementwise},
    {"add_rmsnorm", OpKind::elementwise},
    {"rmsnorm_backward", OpKind::elementwise},
    {"rope", OpKind::elementwise},
    {"swiglu", OpKind::elementwise},
    {"swiglu_backward", OpKind::elementwise},
    {"quantize", OpKind::elementwise},
    {"dequantize", OpKind::elementwise},
    {"sum_squares", OpKind::optimizer},
    {"clip_scale", OpKind::optimizer},
    {"adamw", OpKind::optimizer},
    {"adamw8bit", OpKind::optimizer},
    {"sgd", OpKind::optimizer},
};

}  // namespace

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::product: return "product";
    case OpKind::head: return "head";
    case OpKind::attention: return "attention";
    case OpKind::attention_backward: return "attention_backward";
    case OpKind::elementwise: return "elementwise";
    case OpKind::optimizer: return "optimizer";
    case OpKind::copy: return "copy";
  }
  return "?";
}

std::optional<OpKind> kind_of(std::string_view op) {
  for (const NamedOp& row : kOps)
    if (row.name == op) return row.kind;
  return std::nullopt;
}

double CostModel::seconds(std::string_view op, const Cost& cost) const {
  Rates rates{flops_per_second, bytes_per_second};
  if (const auto kind = kind_of(op)) rates = kinds[static_cast<size_t>(*kind)].value_or(rates);
  const double arithmetic = cost.flops / rates.flops_per_second;
  const double memory = cost.bytes / rates.bytes_per_second;
  return factor * (rates.seconds_per_call.value_or(seconds_per_call) +
                   (rates.adds ? arithmetic + memory : std::max(arithmetic, memory)));
}

}  // namespace capstan
