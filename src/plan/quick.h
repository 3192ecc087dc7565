#pragma once

#include "train/train_options.h"

// Estimates by formula, which people make on paper before they plan. They are shown beside a plan,
// as "quick", and decide nothing.
namespace capstan {

// The rule of thumb of tutorials, in bytes:
//
//   model × precision + batch × sequence × input dimension × precision + optimizer × precision
//
// Precision is the size of a weight; the optimizer has two values for each trained parameter with
// AdamW, one with momentum, else none. There are no gradients, no masters, and of the activations
// only the first block's input, so a run needs more: for OpenLLaMA-7B in bf16 and batches of
// 4 × 512 tokens the formula gives 37.7 GiB where 61.97 were measured. It knows of one device.
struct QuickMemory {
  double model = 0, batch = 0, optimizer = 0;
  double total() const { return model + batch + optimizer; }
};
QuickMemory quick_memory(const TrainOptions& options);

// A copy of the model to generate with, in 16 bits: 2 bytes a parameter, 140 GB for 70 billion. The
// cache of keys and values, which grows with the requests, comes on top.
int64_t copy_bytes(const ModelConfig& model);
// Copies that fit into the memory of one GPU, and if that is none, GPUs that hold one together.
struct Copies {
  int64_t on_each = 0, gpus_for_one = 1;
};
Copies copies_of(const ModelConfig& model, int64_t bytes_of_gpu);

// FLOPs of training on one token. N are the parameters, V the vocabulary, h the width of the heads
// together (hidden, in most models), L the layers, s the tokens of a sample. The two are 19% apart
// for Llama-3.1-8B with samples of 8192 tokens, and so is the utilization (MFU) that follows.
enum class FlopConvention : uint8_t {
  // 6N + 12Lhs: the embedding counts, and attention to all tokens (PaLM, torchtitan).
  whole,
  // 6(N - Vh) + 6Lhs: neither the embedding, unless the head shares it, nor attention to later
  // tokens (NeMo).
  causal,
};
double flops_per_token(const ModelConfig& model, double sequence, FlopConvention convention);

// The same of a run that computes every block twice: the forward pass is a third of all.
constexpr double with_recomputation(double flops_per_token) {
  return flops_per_token * 4 / 3;
}

// Days until so many tokens are trained on, by GPUs that each compute so many FLOPs a second, or
// train on so many tokens a second together.
constexpr double kSecondsPerDay = 86'400;
constexpr double days_of(double flops_per_token, double tokens, double gpus,
                         double flops_per_second) {
  return flops_per_token * tokens / (gpus * flops_per_second) / kSecondsPerDay;
}
constexpr double days_at(double tokens, double tokens_per_second) {
  return tokens / tokens_per_second / kSecondsPerDay;
}

}  // namespace capstan
