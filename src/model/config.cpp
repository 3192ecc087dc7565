#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "model/architectures.h"

namespace capstan {
namespace {

using nlohmann::json;

// Above every existing model, and low enough that no product of sizes overflows 64 bits: the bytes
// of all parameters with their optimizer state stay below 2^60.
constexpr int64_t kMaxVocab = int64_t{1} << 27;
constexpr int64_t kMaxHidden = int64_t{1} << 18;
constexpr int64_t kMaxIntermediate = int64_t{1} << 20;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxPositions = (int64_t{1} << 31) - 1;  // positions are i32

struct SizeRule {
  const char* key;
  int64_t ModelConfig::*field;
  int64_t least, most;
};
constexpr SizeRule kSizes[] = {
    {"vocab_size", &ModelConfig::vocab, 1, kMaxVocab},
    {"hidden_size", &ModelConfig::hidden, 1, kMaxHidden},
    {"intermediate_size", &ModelConfig::intermediate, 1, kMaxIntermediate},
    {"num_hidden_layers", &ModelConfig::layers, 1, kMaxLayers},
    {"num_attention_heads", &ModelConfig::heads, 1, kMaxHeads},
    {"num_key_value_heads", &ModelConfig::kv_heads, 1, kMaxHeads},
    {"head_dim", &ModelConfig::head_dim, 2, 256},
    {"max_position_embeddings", &ModelConfig::max_positions, 1, kMaxPositions},
    {"sliding_window", &ModelConfig::sliding_window, 0, kMaxPositions},
};

template <class... Args>
ConfigProblem problem(const char* key, fmt::format_string<Args...> format, Args&&... args) {
  return {key, fmt::format(format, std::forward<Args>(args)...)};
}

std::optional<ConfigProblem> rope_problem(const ModelConfig& c) {
  const RopeScaling& r = c.rope_scaling;
  if (!(std::isfinite(c.rope_theta) && c.rope_theta > 0))
    return problem("rope_theta", "expected a number above 0, found {}", c.rope_theta);
  if (r.kind == RopeScaling::Kind::none) return {};
  if (!(std::isfinite(r.factor) && r.factor >= 1))
    return problem("rope_scaling.factor", "expected a number of at least 1, found {}", r.factor);
  if (r.kind == RopeScaling::Kind::linear) return {};
  if (!(std::isfinite(r.low_freq_factor) && r.low_freq_factor > 0)) {
    return problem("rope_scaling.low_freq_factor", "expected a number above 0, found {}",
                   r.low_freq_factor);
  }
  if (!(std::isfinite(r.high_freq_factor) && r.high_freq_factor > r.low_freq_factor)) {
    return problem("rope_scaling.high_freq_factor",
                   "expected a number above low_freq_factor, which is {}, found {}",
                   r.low_freq_factor, r.high_freq_factor);
  }
  if (r.original_positions < 1 || r.original_positions > kMaxPositions) {
    return problem("rope_scaling.original_max_position_embeddings",
                   "expected a whole number from 1 to {}, found {}", kMaxPositions,
                   r.original_positions);
  }
  return {};
}

std::optional<ConfigProblem> token_problem(const ModelConfig& c) {
  if (c.bos_id < -1 || c.bos_id >= c.vocab) {
    return problem("bos_token_id", "expected an id below vocab_size, which is {}, found {}",
                   c.vocab, c.bos_id);
  }
  for (const int64_t id : c.eos_ids) {
    if (id < 0 || id >= c.vocab) {
      return problem("eos_token_id", "expected ids below vocab_size, which is {}, found {}",
                     c.vocab, id);
    }
  }
  return {};
}

// Fields without a key in the architecture's config.json must have the architecture's fixed values.
void require_expressible(const ModelConfig& c, const Architecture& a) {
  const bool o_bias = a.attention_bias && c.qkv_bias;
  const bool qkv_bias = a.qkv_bias || o_bias;
  const auto check = [&](bool ok, const char* field) {
    require(ok, Fault::usage, "config: config.json of {} has no key for this {}", a.name, field);
  };
  check(c.qkv_bias == qkv_bias, "qkv_bias");
  check(c.o_bias == o_bias, "o_bias");
  check(!c.mlp_bias || a.mlp_bias, "mlp_bias");
  check(c.qk_norm == a.qk_norm, "qk_norm");
  check(c.sliding_window == 0 || a.window != Architecture::Window::never, "sliding_window");
}

json rope_scaling_json(const RopeScaling& r) {
  if (r.kind == RopeScaling::Kind::none) return nullptr;
  // transformers before 4.43 reads "type".
  if (r.kind == RopeScaling::Kind::linear)
    return {{"type", "linear"}, {"rope_type", "linear"}, {"factor", r.factor}};
  return {{"rope_type", "llama3"},
          {"factor", r.factor},
          {"low_freq_factor", r.low_freq_factor},
          {"high_freq_factor", r.high_freq_factor},
          {"original_max_position_embeddings", r.original_positions}};
}

void put_window(json& out, const ModelConfig& c, Architecture::Window window) {
  if (window == Architecture::Window::never) return;
  // An absent key would mean 4096.
  out["sliding_window"] = c.sliding_window > 0 ? json(c.sliding_window) : json(nullptr);
  if (window == Architecture::Window::plain) return;
  out["use_sliding_window"] = c.sliding_window > 0;
  out["max_window_layers"] = c.sliding_window > 0 ? 0 : c.layers;
}

const char* torch_name(DType t) {
  switch (t) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: fail(Fault::usage, "config: torch_dtype: weights are not stored as {}", name_of(t));
  }
}

}  // namespace

std::optional<ConfigProblem> find_problem(const ModelConfig& c) {
  if (find_architecture(c.architecture) == nullptr) {
    return problem("architectures", "expected one of {}, found {}",
                   fmt::join(known_architectures(), ", "), in_quotes(c.architecture));
  }
  for (const SizeRule& rule : kSizes) {
    const int64_t value = c.*rule.field;
    if (value < rule.least || value > rule.most) {
      return problem(rule.key, "expected a whole number from {} to {}, found {}",
                     std::max<int64_t>(rule.least, 1), rule.most, value);
    }
  }
  if (c.head_dim % 2 != 0)
    return problem("head_dim", "expected an even number (RoPE rotates pairs), found {}",
                   c.head_dim);
  if (c.heads % c.kv_heads != 0) {
    return problem("num_key_value_heads",
                   "expected a divisor of num_attention_heads, which is {}, found {}", c.heads,
                   c.kv_heads);
  }
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    return problem("rms_norm_eps", "expected a number between 0 and 1, found {}", c.norm_eps);
  if (!(c.init_std >= 0 && c.init_std <= 1))
    return problem("initializer_range", "expected a number from 0 to 1, found {}", c.init_std);
  if (auto p = rope_problem(c)) return p;
  return token_problem(c);
}

void check_config(const ModelConfig& config) {
  if (const auto p = find_problem(config)) fail(Fault::usage, "config: {}: {}", p->key, p->message);
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

namespace {

// Keys that parse_config reads and that config_json may write differently or omit; and auto_map,
// which names files that are not copied.
constexpr std::array<std::string_view, 13> kUnderstood = {"dtype",
                                                          "rope_parameters",
                                                          "layer_types",
                                                          "max_window_layers",
                                                          "use_sliding_window",
                                                          "sliding_window",
                                                          "attention_bias",
                                                          "mlp_bias",
                                                          "partial_rotary_factor",
                                                          "original_max_position_embeddings",
                                                          "quantization_config",
                                                          "auto_map",
                                                          "_name_or_path"};

void keep_other_keys(json& out, std::string_view like) {
  const json before = json_or_null(like);
  if (!before.is_object()) return;
  for (const auto& [key, value] : before.items()) {
    const bool understood =
        std::find(kUnderstood.begin(), kUnderstood.end(), key) != kUnderstood.end();
    if (!understood && (!out.contains(key) || key == "use_cache")) out[key] = value;
  }
}

}  // namespace

std::string config_json(const ModelConfig& c, std::string_view like) {
  check_config(c);
  const Architecture& a = *find_architecture(c.architecture);
  require_expressible(c, a);
  json out = {
      {"architectures", {c.architecture}},
      {"model_type", a.model_type},
      {"vocab_size", c.vocab},
      {"hidden_size", c.hidden},
      {"intermediate_size", c.intermediate},
      {"num_hidden_layers", c.layers},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", c.max_positions},
      {"rms_norm_eps", c.norm_eps},
      // transformers 4 reads only these two; version 5 converts them to its rope_parameters.
      {"rope_theta", c.rope_theta},
      {"rope_scaling", rope_scaling_json(c.rope_scaling)},
      {"tie_word_embeddings", c.tied},
      {"initializer_range", c.init_std},
      {"torch_dtype", torch_name(c.dtype)},  // version 5 reads it as its dtype
      {"bos_token_id", c.bos_id >= 0 ? json(c.bos_id) : json(nullptr)},
      {"eos_token_id", c.eos_ids.size() == 1 ? json(c.eos_ids[0]) : json(c.eos_ids)},
      {"use_cache", true},
  };
  if (c.eos_ids.empty()) out["eos_token_id"] = nullptr;
  if (a.attention_bias) out["attention_bias"] = c.qkv_bias;
  if (a.mlp_bias) out["mlp_bias"] = c.mlp_bias;
  put_window(out, c, a.window);
  keep_other_keys(out, like);
  return out.dump(2) + "\n";
}

}  // namespace capstan
