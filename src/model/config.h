#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace capstan {

// How RoPE frequencies are scaled for contexts longer than in the original training.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;  // llama3 only, as are the next two
  double high_freq_factor = 4;
  int64_t original_positions = 8192;

  bool operator==(const RopeScaling&) const = default;
};

// The shape of a Llama-family model: the contents of `config.json`. Plain data.
struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";  // as in config.json's `architectures`
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 2048;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied = false;           // the output head shares the weights of the embedding
  bool qkv_bias = false;       // q_proj, k_proj, v_proj
  bool o_bias = false;         // o_proj
  bool mlp_bias = false;       // gate_proj, up_proj, down_proj
  bool qk_norm = false;        // an RMSNorm within each query and key head, before RoPE
  int64_t sliding_window = 0;  // 0: none
  double init_std = 0.02;
  DType dtype = DType::f32;  // storage type of the checkpoint
  int64_t bos_id = -1;       // -1: none
  std::vector<int64_t> eos_ids;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool operator==(const ModelConfig&) const = default;
};

// Parses the text of a config.json. Errors (Fault::file) give `where`:line:column, the expected and
// the found value; for an unknown architecture they list the known ones. Reads the files of
// transformers 4 and 5 (rope_scaling and rope_parameters; torch_dtype and dtype).
ModelConfig parse_config(std::string_view text, std::string_view where);

// Writes the text of a config.json that transformers 4 and 5 open and that parse_config reads back
// to an equal config. Throws Fault::usage for a config that check_config refuses or that the
// architecture has no keys for (an attention window in a Llama, for example). Given the text that a
// config was read from, copies the keys that parse_config does not know (pad_token_id, use_cache).
std::string config_json(const ModelConfig& config, std::string_view like = {});

// Checks a config: heads divide, sizes are positive and so on. Throws Fault::usage, naming the
// field as in config.json.
void check_config(const ModelConfig& config);

std::vector<std::string> known_architectures();

// A problem in a config: the key, as in config.json, with the expected and the found value.
struct ConfigProblem {
  std::string key;  // nested keys with a dot: "rope_scaling.factor"
  std::string message;
};

// The first rule that the config violates, if any. check_config and parse_config use it.
std::optional<ConfigProblem> find_problem(const ModelConfig& config);

}  // namespace capstan
