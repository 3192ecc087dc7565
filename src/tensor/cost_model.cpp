#include "tensor/cost_model.h"

#include <algorithm>

namespace capstan {
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

double CostModel::seconds(OpKind kind, const Cost& cost) const {
  const Rates rates =
      kinds[static_cast<size_t>(kind)].value_or(Rates{flops_per_second, bytes_per_second});
  const double arithmetic = cost.flops / rates.flops_per_second;
  const double memory = cost.bytes / rates.bytes_per_second;
  return factor * (rates.seconds_per_call.value_or(seconds_per_call) +
                   (rates.adds ? arithmetic + memory : std::max(arithmetic, memory)));
}

}  // namespace capstan
