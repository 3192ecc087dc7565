#pragma once

#include "model/config.h"
#include "model/lora.h"

// Models that take no time, for tests of what is done with them.
namespace capstan::test {

// Odd sizes, and keys that two heads share.
inline ModelConfig grouped_config() {
  ModelConfig c;
  c.vocab = 67;
  c.hidden = 24;
  c.intermediate = 37;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.init_std = 0.15;
  return c;
}

// Matrices that end within a block of quantized values.
inline ModelConfig uneven_config() {
  ModelConfig c = grouped_config();
  c.hidden = 40;
  c.intermediate = 52;
  c.layers = 2;
  c.head_dim = 10;
  c.qkv_bias = c.mlp_bias = true;
  return c;
}

// All linear maps have multiples of 16 in both directions.
inline ModelConfig aligned_config() {
  ModelConfig c;
  c.vocab = 67;
  c.hidden = 64;
  c.intermediate = 96;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  return c;
}

// Adapters beside every linear map.
inline LoraOptions every_map(double dropout) {
  LoraOptions o{.r = 3, .alpha = 6, .dropout = dropout};
  o.query = o.key = o.value = o.projection = o.mlp = o.head = true;
  return o;
}

}  // namespace capstan::test
