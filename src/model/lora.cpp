#include "model/lora.h"

#include <cmath>

#include "base/error.h"

namespace capstan {

double LoraOptions::scale() const {
  const auto rank = static_cast<double>(r);
  return alpha / (rslora ? std::sqrt(rank) : rank);
}

void check_lora(const LoraOptions& o) {
  require(o.r >= 1, Fault::usage, "lora_r: must be 1 or more, but is {}", o.r);
  require(std::isfinite(o.alpha), Fault::usage, "lora_alpha: must be finite, but is {}", o.alpha);
  require(o.dropout >= 0 && o.dropout < 1, Fault::usage,
          "lora_dropout: must be at least 0 and below 1, but is {}", o.dropout);
  require(o.query || o.key || o.value || o.projection || o.mlp || o.head, Fault::usage,
          "lora: no linear map has an adapter; set one of lora_query, lora_key, lora_value, "
          "lora_projection, lora_mlp, lora_head");
}

}  // namespace capstan
