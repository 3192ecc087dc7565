#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "support/message_of.h"

namespace capstan {

inline ModelConfig small(const char* architecture, bool tied = false) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab = 50;
  c.hidden = 24;
  c.intermediate = 37;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.tied = tied;
  c.qk_norm = c.architecture == "Qwen3ForCausalLM";
  c.qkv_bias = c.architecture == "Qwen2ForCausalLM";
  c.bos_id = 1;
  c.eos_ids = {2};
  return c;
}

// A model in memory of its own.
struct Model {
  explicit Model(const ModelConfig& config, Precision precision = Precision::f32_true,
                 const std::optional<LoraOptions>& lora = {}, Quantize quantize = Quantize::none)
      : params(arena, make_spec(config, Decay::all, lora, quantize), precision, Gradients::none) {
    // Biases and norms, too, must differ from place to place, or a mix-up would not show.
    int64_t n = 0;
    for (int i = 0; i < params.count(); ++i) {
      if (params.quantized(i) != nullptr) continue;
      std::vector<float> x(static_cast<size_t>(params.stored(i).numel()));
      for (float& v : x) v = std::sin(static_cast<float>(++n));
      set(i, x);
    }
    params.refresh_weights(queue);
  }

  void set(int i, const std::vector<float>& x) {
    const Tensor t = params.stored(i);
    if (t.dtype() == DType::f32) return queue.upload(t, x.data());
    std::vector<bf16> y;
    for (const float v : x) y.emplace_back(v);
    queue.upload(t, y.data());
  }
  std::vector<float> values(const Tensor& t) {
    std::vector<float> x(static_cast<size_t>(t.numel()));
    if (t.dtype() == DType::f32) {
      queue.download(x.data(), t);
    } else {
      std::vector<bf16> y(x.size());
      queue.download(y.data(), t);
      for (size_t i = 0; i < y.size(); ++i) x[i] = static_cast<float>(y[i]);
    }
    return x;
  }
  std::vector<std::vector<float>> all() {
    std::vector<std::vector<float>> x;
    for (int i = 0; i < params.count(); ++i) x.push_back(values(params.stored(i)));
    return x;
  }
  void clear() {
    for (int i = 0; i < params.count(); ++i)
      set(i, std::vector<float>(static_cast<size_t>(params.stored(i).numel()), -1));
  }

  Arena arena{Arena::Heap{}};
  Queue queue{Device::cpu, arena};
  Parameters params;
};

// The message of a load that must fail.
inline std::string load_failure(Model& model, const std::filesystem::path& dir) {
  return message_of(Fault::file, [&] { load_parameters(model.queue, model.params, dir); });
}

}  // namespace capstan
