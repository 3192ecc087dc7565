#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/transformer.h"

// What the tests of whole models share.
namespace capstan::test {

using Values = std::vector<double>;

// ‖found - expected‖ / ‖expected‖; NaN when either holds one, infinite when lengths differ.
inline double error(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

inline Values values(const Tensor& t) {
  Values v(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = t.dtype() == DType::f32 ? static_cast<double>(t.as<float>()[i])
                                   : static_cast<double>(static_cast<float>(t.as<bf16>()[i]));
  return v;
}

// A batch in host memory, used where it lies.
struct PlainBatch {
  std::vector<int32_t> ids, labels, positions, starts;

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
  Batch view(int64_t window) {
    const auto tensor = [](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {static_cast<int64_t>(v.size())});
    };
    return {tensor(ids),
            tensor(labels),
            tensor(positions),
            {tensor(starts), static_cast<int64_t>(starts.size()) - 1, longest(), window, 0},
            targets()};
  }
};

// A model on the CPU with memory from the heap.
struct Engine {
  Arena arena{Arena::Heap{}};
  Queue q{Device::cpu, arena};
  Parameters params;
  Transformer model;
  Buffer loss;

  explicit Engine(const ModelConfig& config, Precision precision = Precision::f32_true,
                  Recompute recompute = Recompute::none, int64_t positions = 64,
                  const std::optional<LoraOptions>& lora = {}, Quantize quantize = Quantize::none)
      : params(arena, make_spec(config, Decay::all, lora, quantize), precision, Gradients::kept),
        model(q, params, recompute, positions),
        loss(arena.make(Category::data, DType::f64, {1}, "loss")) {
    params.zero_grads(q);
    clear_loss();
  }

  void clear_loss() { *loss->as<double>() = 0; }
  double loss_sum() const { return *loss->as<double>(); }

  // Gradients (or weights) of what is trained, by the names that checkpoints have.
  std::map<std::string, Values> by_name(bool gradients) const {
    std::map<std::string, Values> result;
    for (int i = 0; i < params.count(); ++i) {
      if (!params.spec().trainable(i)) continue;
      for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts)
        result[part.name] =
            values((gradients ? params.grad(i) : params.stored(i)).rows(part.first_row, part.rows));
    }
    return result;
  }
};

}  // namespace capstan::test
