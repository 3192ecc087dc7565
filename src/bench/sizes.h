#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/recompute.h"
#include "tensor/device.h"

namespace capstan {

// A training step: a TinyLlama-like model, on documents of this many tokens.
struct BenchStep {
  ModelConfig model;
  int64_t documents = 0, length = 0;  // in a micro-batch
  Recomputation recompute = {};
  int64_t micro_batches = 1;  // several accumulate gradients
  bool sgd = false;           // instead of AdamW, which computes more for each byte
};

struct Documents {
  int64_t count = 0, length = 0;
};

// The sizes to measure.
struct BenchSizes {
  std::vector<int64_t> squares;  // n: products of two n x n matrices
  int64_t few = 16;              // tokens of a memory-bound product
  // A transformer block, and the rows of products and memory-bound ops.
  int64_t tokens = 0, hidden = 0, inner = 0;
  int64_t head_tokens = 0, vocab = 0;
  // For attention; a GPU's takes the sum of two times, so it needs two lengths.
  std::vector<Documents> documents;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t copied = 0;            // bytes
  std::vector<BenchStep> steps;  // on a GPU only the first
  double seconds = 0;            // for each measurement
  double patience = 0;           // a call that takes longer than these seconds is not repeated
  int turns = 1;                 // of a measurement that other programs disturb, at most
  double limit = 0;              // seconds after which no further turn and no long step begins
};
// TinyLlama's shapes on a GPU; smaller ones on a CPU, a minute on two cores. `quick`: a quarter of
// that.
BenchSizes bench_sizes(Device device, bool quick);

}  // namespace capstan
