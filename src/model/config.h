#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace capstan {

// How rope's frequencies are stretched for contexts longer than the model was trained on.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;  // llama3 only, as are the next two
  double high_freq_factor = 4;
  int64_t original_positions = 8192;

  bool operator==(const RopeScaling&) const = default;
};

// The shape of a Llama-family model: what `config.json` says. Plain data.
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
  bool tied = false;           // the output head is the embedding
  bool qkv_bias = false;       // q_proj, k_proj, v_proj
  bool o_bias = false;         // o_proj
  bool mlp_bias = false;       // gate_proj, up_proj, down_proj
  bool qk_norm = false;        // an rmsnorm within each query and key head, before rope
  int64_t sliding_window = 0;  // 0: none
  double init_std = 0.02;
  DType dtype = DType::f32;  // what the checkpoint is stored in
  int64_t bos_id = -1;       // -1: none
  std::vector<int64_t> eos_ids;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool operator==(const ModelConfig&) const = default;
};

// Reads the text of a config.json. Errors (Fault::file) say `where`:line:column, what was expected
// and what was found; an unknown architecture lists the known ones. Understands what transformers 4
// and 5 write (rope_scaling and rope_parameters; torch_dtype and dtype).
ModelConfig parse_config(std::string_view text, std::string_view where);

// The text of a config.json that transformers 4 and 5 open and parse_config reads back to an equal
// config. Throws Fault::usage for a config that check_config refuses or that the architecture has
// no keys for (an attention window in a Llama, say). With the text that a config was read from,
// keys of it that parse_config does not know stay as they are there (pad_token_id, use_cache).
std::string config_json(const ModelConfig& config, std::string_view like = {});

// Checks a config that was made by hand or read: heads divide, sizes are positive and so on.
// Throws Fault::usage, naming the field as config.json does.
void check_config(const ModelConfig& config);

std::vector<std::string> known_architectures();

// What is wrong with a config: the key, as config.json has it, and what was expected and found.
struct ConfigProblem {
  std::string key;  // nested keys with a dot: "rope_scaling.factor"
  std::string message;
};

// The first rule that the config breaks, if any: the rules behind check_config and parse_config.
std::optional<ConfigProblem> find_problem(const ModelConfig& config);

}  // namespace capstan
