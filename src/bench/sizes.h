#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/recompute.h"
#include "tensor/device.h"

namespace capstan {

// A training step: TinyLlama's kind of model, on documents of so many tokens.
struct BenchStep {
  ModelConfig model;
  int64_t documents = 0, length = 0;  // of a micro-batch
  Recomputation recompute = {};
  int64_t micro_batches = 1;  // several add their gradients up
};

// What is measured.
struct BenchSizes {
  std::vector<int64_t> squares;  // n: products of two n x n matrices
  int64_t few = 16;              // tokens of a product that reads more than it computes
  // A block of a transformer, and the rows that products and bandwidth-bound ops have.
  int64_t tokens = 0, hidden = 0, inner = 0;
  int64_t head_tokens = 0, vocab = 0;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;  // of attention
  int64_t copied = 0;                                                        // bytes
  std::vector<BenchStep> steps;  // on a GPU the first alone
  double seconds = 0;            // for each measurement
};
// TinyLlama's shapes on a GPU; smaller ones on a CPU, in a minute on two cores.
// `quick`: a quarter of that.
BenchSizes bench_sizes(Device device, bool quick);

}  // namespace capstan
