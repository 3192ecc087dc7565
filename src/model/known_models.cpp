#include "model/known_models.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace capstan {
namespace {

// A family: values that its sizes share.
struct Family {
  const char* architecture;
  int64_t vocab, max_positions;
  double norm_eps, rope_theta;
  double llama3_factor;  // 0: no RoPE scaling
  int64_t bos_id, eos_id;
  DType dtype;
};
constexpr Family kLlama1 = {"LlamaForCausalLM", 32000, 2048, 1e-6, 1e4, 0, 1, 2, DType::f16};
constexpr Family kLlama2 = {"LlamaForCausalLM", 32000, 4096, 1e-5, 1e4, 0, 1, 2, DType::f16};
constexpr const Family& kOpenLlama = kLlama1;
constexpr Family kTinyLlama = {"LlamaForCausalLM", 32000, 2048, 1e-5, 1e4, 0, 1, 2, DType::f32};
constexpr Family kLlama3 = {"LlamaForCausalLM", 128256, 8192, 1e-5, 5e5, 0, 128000, 128001,
                            DType::bf16};
constexpr Family kLlama31 = {"LlamaForCausalLM", 128256, 131072, 1e-5, 5e5, 8, 128000, 128001,
                             DType::bf16};
constexpr Family kLlama32 = {"LlamaForCausalLM", 128256, 131072, 1e-5, 5e5, 32, 128000, 128001,
                             DType::bf16};
constexpr Family kMistral = {"MistralForCausalLM", 32000, 32768, 1e-5, 1e4, 0, 1, 2, DType::bf16};
constexpr Family kMistral2 = {"MistralForCausalLM", 32000, 32768, 1e-5, 1e6, 0, 1, 2, DType::bf16};
constexpr Family kMistral3 = {"MistralForCausalLM", 32768, 32768, 1e-5, 1e6, 0, 1, 2, DType::bf16};
constexpr Family kQwen25Small = {"Qwen2ForCausalLM", 151936, 32768, 1e-6, 1e6, 0, -1, 151643,
                                 DType::bf16};
constexpr Family kQwen25 = {"Qwen2ForCausalLM", 152064, 131072, 1e-6, 1e6, 0, -1, 151643,
                            DType::bf16};
constexpr Family kQwen3 = {"Qwen3ForCausalLM", 151936, 40960, 1e-6, 1e6, 0, -1, 151645,
                           DType::bf16};

struct Row {
  const char* name;
  const Family& family;
  int64_t hidden, intermediate, layers, heads, kv_heads;
  int64_t head_dim = 0;  // 0: hidden / heads
  bool tied = false;
  int64_t window = 0;
};

// Sizes as in the models' config.json files.
const Row kModels[] = {
    {"TinyLlama-1.1B", kTinyLlama, 2048, 5632, 22, 32, 4},
    {"tiny-llama-1.1b", kTinyLlama, 2048, 5632, 22, 32, 4},  // LitGPT's name
    {"micro-llama-300M", kTinyLlama, 1024, 5632, 12, 16, 4},
    {"MicroLlama", kTinyLlama, 1024, 5632, 12, 16, 4},
    {"open_llama_3b", kOpenLlama, 3200, 8640, 26, 32, 32},
    {"open_llama_7b", kOpenLlama, 4096, 11008, 32, 32, 32},
    {"open_llama_13b", kOpenLlama, 5120, 13824, 40, 40, 40},
    {"llama-7b", kLlama1, 4096, 11008, 32, 32, 32},
    {"llama-13b", kLlama1, 5120, 13824, 40, 40, 40},
    {"llama-30b", kLlama1, 6656, 17920, 60, 52, 52},
    {"llama-65b", kLlama1, 8192, 22016, 80, 64, 64},
    {"Llama-2-7b", kLlama2, 4096, 11008, 32, 32, 32},
    {"Llama-2-13b", kLlama2, 5120, 13824, 40, 40, 40},
    {"Llama-2-70b", kLlama2, 8192, 28672, 80, 64, 8},
    {"Meta-Llama-3-8B", kLlama3, 4096, 14336, 32, 32, 8},
    {"Meta-Llama-3-70B", kLlama3, 8192, 28672, 80, 64, 8},
    {"Llama-3-8B", kLlama3, 4096, 14336, 32, 32, 8},
    {"Llama-3-70B", kLlama3, 8192, 28672, 80, 64, 8},
    {"Llama-3.1-8B", kLlama31, 4096, 14336, 32, 32, 8},
    {"Llama-3.1-70B", kLlama31, 8192, 28672, 80, 64, 8},
    {"Llama-3.1-405B", kLlama31, 16384, 53248, 126, 128, 8},
    {"Meta-Llama-3.1-8B", kLlama31, 4096, 14336, 32, 32, 8},
    {"Meta-Llama-3.1-70B", kLlama31, 8192, 28672, 80, 64, 8},
    {"Meta-Llama-3.1-405B", kLlama31, 16384, 53248, 126, 128, 8},
    {"Llama-3.2-1B", kLlama32, 2048, 8192, 16, 32, 8, 64, true},
    {"Llama-3.2-3B", kLlama32, 3072, 8192, 28, 24, 8, 128, true},
    {"Llama-3.3-70B", kLlama31, 8192, 28672, 80, 64, 8},
    {"Mistral-7B", kMistral, 4096, 14336, 32, 32, 8, 0, false, 4096},
    {"Mistral-7B-v0.1", kMistral, 4096, 14336, 32, 32, 8, 0, false, 4096},
    {"Mistral-7B-v0.2", kMistral2, 4096, 14336, 32, 32, 8},
    {"Mistral-7B-Instruct-v0.2", kMistral2, 4096, 14336, 32, 32, 8},
    {"Mistral-7B-v0.3", kMistral3, 4096, 14336, 32, 32, 8},
    {"Mistral-7B-Instruct-v0.3", kMistral3, 4096, 14336, 32, 32, 8},
    {"Qwen2.5-0.5B", kQwen25Small, 896, 4864, 24, 14, 2, 0, true},
    {"Qwen2.5-1.5B", kQwen25Small, 1536, 8960, 28, 12, 2, 0, true},
    {"Qwen2.5-3B", kQwen25Small, 2048, 11008, 36, 16, 2, 0, true},
    {"Qwen2.5-7B", kQwen25, 3584, 18944, 28, 28, 4},
    {"Qwen2.5-14B", kQwen25, 5120, 13824, 48, 40, 8},
    {"Qwen2.5-32B", kQwen25, 5120, 27648, 64, 40, 8},
    {"Qwen2.5-72B", kQwen25, 8192, 29568, 80, 64, 8},
    {"Qwen3-0.6B", kQwen3, 1024, 3072, 28, 16, 8, 128, true},
    {"Qwen3-1.7B", kQwen3, 2048, 6144, 28, 16, 8, 128, true},
    {"Qwen3-4B", kQwen3, 2560, 9728, 36, 32, 8, 128, true},
    {"Qwen3-8B", kQwen3, 4096, 12288, 36, 32, 8, 128},
    {"Qwen3-14B", kQwen3, 5120, 17408, 40, 40, 8, 128},
    {"Qwen3-32B", kQwen3, 5120, 25600, 64, 64, 8, 128},
};

ModelConfig config_of(const Row& row) {
  const Family& f = row.family;
  ModelConfig c;
  c.architecture = f.architecture;
  c.vocab = f.vocab;
  c.hidden = row.hidden;
  c.intermediate = row.intermediate;
  c.layers = row.layers;
  c.heads = row.heads;
  c.kv_heads = row.kv_heads;
  c.head_dim = row.head_dim > 0 ? row.head_dim : row.hidden / row.heads;
  c.max_positions = f.max_positions;
  c.norm_eps = f.norm_eps;
  c.rope_theta = f.rope_theta;
  if (f.llama3_factor > 0)
    c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = f.llama3_factor};
  c.tied = row.tied;
  c.qkv_bias = c.architecture == "Qwen2ForCausalLM";
  c.qk_norm = c.architecture == "Qwen3ForCausalLM";
  c.sliding_window = row.window;
  c.dtype = f.dtype;
  c.bos_id = f.bos_id;
  c.eos_ids = {f.eos_id};
  return c;
}

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

bool begins_with(std::string_view name, std::string_view row) {
  if (name.size() < row.size() || !std::equal(row.begin(), row.end(), name.begin(), same_letter))
    return false;
  return name.size() == row.size() ||
         std::string_view("-_.").find(name[row.size()]) != std::string_view::npos;
}

}  // namespace

std::optional<ModelConfig> known_model(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  name = name.substr(name.rfind('/') + 1);
  const Row* found = nullptr;
  for (const Row& row : kModels)
    if (begins_with(name, row.name) &&
        (found == nullptr ||
         std::string_view(row.name).size() > std::string_view(found->name).size()))
      found = &row;
  if (found == nullptr) return std::nullopt;
  return config_of(*found);
}

std::span<const KnownRepository> known_repositories() {
  static constexpr KnownRepository kRepositories[] = {
      {"keeeeenw/MicroLlama", "MicroLlama"},
      {"TinyLlama/TinyLlama_v1.1", "TinyLlama-1.1B"},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama-1.1B", DType::bf16},
      {"TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", "TinyLlama-1.1B"},
      {"openlm-research/open_llama_3b", "open_llama_3b"},
      {"openlm-research/open_llama_7b", "open_llama_7b"},
      {"openlm-research/open_llama_13b", "open_llama_13b"},
      {"huggyllama/llama-7b", "llama-7b"},
      {"huggyllama/llama-13b", "llama-13b"},
      {"huggyllama/llama-30b", "llama-30b"},
      {"huggyllama/llama-65b", "llama-65b"},
      {"meta-llama/Llama-2-7b-hf", "Llama-2-7b"},
      {"meta-llama/Llama-2-13b-hf", "Llama-2-13b"},
      {"meta-llama/Llama-2-70b-hf", "Llama-2-70b"},
      {"meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B"},
      {"meta-llama/Meta-Llama-3-70B", "Meta-Llama-3-70B"},
      {"meta-llama/Llama-3.1-8B", "Llama-3.1-8B"},
      {"meta-llama/Llama-3.1-70B", "Llama-3.1-70B"},
      {"meta-llama/Llama-3.1-405B", "Llama-3.1-405B"},
      {"meta-llama/Llama-3.2-1B", "Llama-3.2-1B"},
      {"meta-llama/Llama-3.2-3B", "Llama-3.2-3B"},
      {"meta-llama/Llama-3.3-70B-Instruct", "Llama-3.3-70B"},
      {"mistralai/Mistral-7B-v0.1", "Mistral-7B-v0.1"},
      {"mistralai/Mistral-7B-Instruct-v0.2", "Mistral-7B-Instruct-v0.2"},
      {"mistralai/Mistral-7B-v0.3", "Mistral-7B-v0.3"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-Instruct-v0.3"},
      {"Qwen/Qwen2.5-0.5B", "Qwen2.5-0.5B"},
      {"Qwen/Qwen2.5-1.5B", "Qwen2.5-1.5B"},
      {"Qwen/Qwen2.5-3B", "Qwen2.5-3B"},
      {"Qwen/Qwen2.5-7B", "Qwen2.5-7B"},
      {"Qwen/Qwen2.5-14B", "Qwen2.5-14B"},
      {"Qwen/Qwen2.5-32B", "Qwen2.5-32B"},
      {"Qwen/Qwen2.5-72B", "Qwen2.5-72B"},
      {"Qwen/Qwen3-0.6B", "Qwen3-0.6B"},
      {"Qwen/Qwen3-1.7B", "Qwen3-1.7B"},
      {"Qwen/Qwen3-4B", "Qwen3-4B"},
      {"Qwen/Qwen3-8B", "Qwen3-8B"},
      {"Qwen/Qwen3-14B", "Qwen3-14B"},
      {"Qwen/Qwen3-32B", "Qwen3-32B"},
  };
  return kRepositories;
}

std::string_view known_families() {
  return "Llama 1 to 3.3, TinyLlama, MicroLlama, OpenLLaMA, Mistral 7B, Qwen2.5 and Qwen3";
}

std::vector<std::string_view> known_model_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kModels) names.emplace_back(row.name);
  return names;
}

}  // namespace capstan
