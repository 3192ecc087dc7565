#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/trainer.h"

// What bench_step measures, as its command line names it.
namespace capstan::bench {

struct Sizes {
  int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
};

// What is trained.
struct Variant {
  std::string name;
  std::optional<LoraOptions> lora = {};
  Quantize quantize = Quantize::none;
  OptimizerClass optimizer = {};
};

struct Case {
  std::string name;
  Sizes model;
  Precision precision;
  int64_t micro_batch, seq, accumulation;
  Recomputation recompute = {};
  std::vector<Variant> variants = {{"full"}};
  bool tf32 = false;        // of f32 products
  bool stochastic = false;  // rounding of bf16 weights
  bool offload = false;     // masters and moments in host memory…
  bool few_bits = false;    // …of AdamW8bit
};

// Throws Fault::usage for what is none.
Case parse(const std::string& text);

// Random tokens for one step.
Dataset random_samples(const Case& c);

// On a GPU where there is one.
TrainOptions options_of(const Case& c, const Variant& v, const BatchLimits& limits);

}  // namespace capstan::bench
