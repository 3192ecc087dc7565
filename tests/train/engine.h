#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/small_models.h"
#include "model/transformer.h"
#include "ops/elementwise.h"
#include "ops/reference.h"

// What the tests of whole models share.
namespace capstan::test {

// Puts f32 values into a contiguous tensor of the queue's device, rounded to its type.
inline void put(Queue& q, const Tensor& to, const std::vector<float>& v) {
  if (to.dtype() == DType::f32) return q.upload(to, v.data());
  std::vector<bf16> narrow;
  for (const float x : v) narrow.emplace_back(x);
  q.upload(to, narrow.data());
}

// A batch in host memory, with room for it on a device that needs its own.
struct PlainBatch {
  std::vector<int32_t> ids, labels, positions, starts;
  std::vector<int32_t> ordinals;  // of the tokens; empty: as they stand

  PlainBatch(std::vector<int32_t> ids_, std::vector<int32_t> labels_, std::vector<int32_t> starts_)
      : ids(std::move(ids_)), labels(std::move(labels_)), starts(std::move(starts_)) {
    for (size_t d = 0; d + 1 < starts.size(); ++d)
      for (int32_t p = 0; p < starts[d + 1] - starts[d]; ++p) positions.push_back(p);
  }
  int64_t longest() const {
    int32_t n = 0;
    for (size_t d = 0; d + 1 < starts.size(); ++d) n = std::max(n, starts[d + 1] - starts[d]);
    return n;
  }
  int64_t targets() const {
    return static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), -100);
  }
  // Used where it lies: for the CPU and sim.
  Batch view(int64_t window) {
    const auto tensor = [](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {static_cast<int64_t>(v.size())});
    };
    return {tensor(ids),
            tensor(labels),
            tensor(positions),
            ordinals.empty() ? Tensor() : tensor(ordinals),
            {tensor(starts), static_cast<int64_t>(starts.size()) - 1, longest(), window, 0},
            targets()};
  }
  // A copy in memory of the queue's device, as long as this batch lives; its arena must live
  // longer.
  Batch on(Queue& q, int64_t window) {
    Batch b = view(window);
    for (Tensor* t : {&b.ids_T, &b.labels_T, &b.positions_T, &b.ordinals_T, &b.mask.starts}) {
      if (!*t) continue;
      copies_.push_back(q.arena().make(Category::data, DType::i32, t->shape(), "test batch"));
      q.upload(copies_.back(), t->raw());
      *t = copies_.back();
    }
    return b;
  }

 private:
  std::vector<Buffer> copies_;
};

// Two documents, of 9 and 14 tokens, some without a target.
inline PlainBatch some_batch(int64_t vocab) {
  const Rng rng({.seed = 5});
  std::vector<int32_t> ids, labels;
  for (uint64_t t = 0; t < 23; ++t) {
    ids.push_back(static_cast<int32_t>(rng.below(2 * t, static_cast<uint64_t>(vocab))));
    labels.push_back(t % 4 == 3 ? -100 : static_cast<int32_t>(rng.below(2 * t + 1, 60)));
  }
  return {ids, labels, {0, 9, 23}};
}

// Forward and backward of one micro-batch.
inline void train_on(Transformer& model, Queue& q, const Batch& batch, const Scalar& scale,
                     const Tensor& loss, const std::optional<StepKey>& key = {}) {
  Transformer::Kept kept = model.make_kept();
  model.forward(q, batch, kept, {}, key);
  model.backward(q, batch, kept, scale, loss);
}

// Draws the factors of adapters that begin as zeros, so that adapters do something.
inline void draw_zero_factors(Queue& q, Parameters& params) {
  for (int i = 0; i < params.count(); ++i)
    if (const Param& p = params.spec().params[static_cast<size_t>(i)];
        p.adapter && p.init == Init::zeros)
      fill_normal(q, params.stored(i), 0.2f, {.seed = 8, .site = static_cast<uint32_t>(i)});
  params.refresh_weights(q);
}

// All blocks alike, or the first in another way than those after it.
inline const Recomputation kPolicies[] = {Recompute::none,
                                          {Recompute::selective, 1},
                                          Recompute::selective,
                                          {Recompute::block, 1},
                                          Recompute::block};

// A model with memory from the heap of its device.
struct Engine {
  Arena arena;
  Queue q;
  Parameters params;
  Transformer model;
  Buffer loss;

  explicit Engine(const ModelConfig& config, Precision precision = Precision::f32_true,
                  const Recomputation& recompute = {}, int64_t positions = 64,
                  const std::optional<LoraOptions>& lora = {}, Quantize quantize = Quantize::none,
                  Device device = Device::cpu)
      : arena(Arena::Heap{}, device),
        q(device, arena),
        params(arena, make_spec(config, Decay::all, lora, quantize), precision, Gradients::kept),
        model(q, params, recompute, positions),
        loss(arena.make(Category::data, DType::f64, {1}, "loss")) {
    params.begin_step(q);
    clear_loss();
  }
  // The same, on a device, in f32 and whole unless said.
  Engine(Device device, const ModelConfig& config, Precision precision = Precision::f32_true,
         const Recomputation& recompute = {}, const std::optional<LoraOptions>& lora = {},
         Quantize quantize = Quantize::none)
      : Engine(config, precision, recompute, 64, lora, quantize, device) {}

  void clear_loss() {
    const double zero = 0;
    q.upload(loss, &zero);
  }
  double loss_sum() { return q.value<double>(loss); }

  // Gradients (or weights) of what is trained, by the names that checkpoints have.
  std::map<std::string, Values> by_name(bool gradients) {
    std::map<std::string, Values> result;
    for (int i = 0; i < params.count(); ++i) {
      if (!params.spec().trainable(i)) continue;
      for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts)
        result[part.name] = values_of(
            q, (gradients ? params.grad(i) : params.stored(i)).rows(part.first_row, part.rows));
    }
    return result;
  }
};

}  // namespace capstan::test
