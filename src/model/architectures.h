#pragma once

#include <cstdint>
#include <string_view>

namespace capstan {

// Differences between the model classes of transformers: which config.json keys they use, and their
// defaults for absent keys.
struct Architecture {
  enum class Window {
    never,  // ignores sliding_window
    plain,  // sliding_window, in every layer
    gated,  // only with use_sliding_window, and from layer max_window_layers on
  };
  std::string_view name;        // in `architectures`
  std::string_view model_type;  // in `model_type`
  Window window;
  bool qkv_bias;        // always present, without a key
  bool attention_bias;  // has the key attention_bias: q, k, v and o
  bool mlp_bias;        // has the key mlp_bias: gate, up and down
  bool qk_norm;         // always present
  int64_t kv_heads;     // 0: as many as heads
  int64_t head_dim;     // 0: hidden_size / num_attention_heads
  int64_t max_positions;
  int64_t bos_id, eos_id;  // -1: none
};

inline constexpr Architecture kArchitectures[] = {
    {.name = "LlamaForCausalLM",
     .model_type = "llama",
     .window = Architecture::Window::never,
     .qkv_bias = false,
     .attention_bias = true,
     .mlp_bias = true,
     .qk_norm = false,
     .kv_heads = 0,
     .head_dim = 0,
     .max_positions = 2048,
     .bos_id = 1,
     .eos_id = 2},
    {.name = "MistralForCausalLM",
     .model_type = "mistral",
     .window = Architecture::Window::plain,
     .qkv_bias = false,
     .attention_bias = false,
     .mlp_bias = false,
     .qk_norm = false,
     .kv_heads = 8,
     .head_dim = 0,
     .max_positions = 131072,
     .bos_id = 1,
     .eos_id = 2},
    {.name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .window = Architecture::Window::gated,
     .qkv_bias = true,
     .attention_bias = false,
     .mlp_bias = false,
     .qk_norm = false,
     .kv_heads = 0,
     .head_dim = 0,
     .max_positions = 32768,
     .bos_id = -1,
     .eos_id = -1},
    {.name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .window = Architecture::Window::gated,
     .qkv_bias = false,
     .attention_bias = true,
     .mlp_bias = false,
     .qk_norm = true,
     .kv_heads = 0,
     .head_dim = 128,
     .max_positions = 32768,
     .bos_id = -1,
     .eos_id = -1},
};

// Null for an unknown name.
inline const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& a : kArchitectures) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

}  // namespace capstan
