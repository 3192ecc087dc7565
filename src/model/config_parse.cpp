#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "model/architectures.h"
#include "model/config.h"

namespace capstan {
namespace {

using nlohmann::json;

// The fields of config.json, or of an object in it, each read with its required type. A null counts
// as absent: transformers writes both.
class Fields {
 public:
  Fields(std::string_view text, std::string_view where, const json& object,
         std::string_view inside = {})
      : text_(text), where_(where), object_(object), inside_(inside) {}

  template <class... Args>
  [[noreturn]] void refuse(std::string_view key, fmt::format_string<Args...> format,
                           Args&&... args) const {
    const std::string message = fmt::format(format, std::forward<Args>(args)...);
    if (inside_.empty()) {
      fail(Fault::file, "{}: {}: {}", json_location(text_, where_, {key}), key, message);
    }
    fail(Fault::file, "{}: {}.{}: {}", json_location(text_, where_, {inside_, key}), inside_, key,
         message);
  }

  bool mentions(std::string_view key) const { return object_.contains(key); }
  const json* find(std::string_view key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  int64_t integer(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) refuse(key, "expected a whole number, found none; add it");
    return to_integer(key, *value);
  }
  int64_t integer(std::string_view key, int64_t absent) const {
    const json* value = find(key);
    return value == nullptr ? absent : to_integer(key, *value);
  }
  int64_t to_integer(std::string_view key, const json& value) const {
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)
      refuse(key, "expected a whole number, found {}, which is too large", shown(value));
    if (!value.is_number_integer()) refuse(key, "expected a whole number, found {}", shown(value));
    return value.get<int64_t>();
  }
  double number(std::string_view key) const {
    if (find(key) == nullptr) refuse(key, "expected a number, found none; add it");
    return number(key, 0);
  }
  double number(std::string_view key, double absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number()) refuse(key, "expected a number, found {}", shown(*value));
    return value->get<double>();
  }
  bool flag(std::string_view key, bool absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) refuse(key, "expected true or false, found {}", shown(*value));
    return value->get<bool>();
  }
  std::string text(std::string_view key, std::string_view absent) const {
    const json* value = find(key);
    if (value == nullptr) return std::string(absent);
    if (!value->is_string()) refuse(key, "expected a string, found {}", shown(*value));
    return value->get<std::string>();
  }
  Fields object(std::string_view key) const {
    const json* value = find(key);
    if (!value->is_object()) refuse(key, "expected an object, found {}", shown(*value));
    return {text_, where_, *value, key};
  }

 private:
  std::string_view text_, where_;
  const json& object_;
  std::string_view inside_;  // the key of the object; empty for the whole
};

const Architecture& read_architecture(const Fields& in) {
  const std::string known = fmt::format("{}", fmt::join(known_architectures(), ", "));
  const std::string type = in.text("model_type", "");
  const json* names = in.find("architectures");
  if (names == nullptr) {  // model_type is as good
    for (const Architecture& a : kArchitectures) {
      if (a.model_type == type) return a;
    }
    in.refuse("architectures", "expected a list with one of {}, found none", known);
  }
  if (!names->is_array() || names->size() != 1 || !names->front().is_string())
    in.refuse("architectures", "expected a list with one of {}, found {}", known, shown(*names));
  const auto name = names->front().get<std::string>();
  const Architecture* a = find_architecture(name);
  if (a == nullptr) {
    in.refuse("architectures",
              "expected one of {}, found {}; other architectures are not supported", known,
              in_quotes(name));
  }
  if (!type.empty() && type != a->model_type) {
    in.refuse("model_type", "expected {} for {}, found {}", in_quotes(a->model_type), name,
              in_quotes(type));
  }
  return *a;
}

void refuse_what_we_lack(const Fields& in) {
  if (const auto act = in.text("hidden_act", "silu"); act != "silu")
    in.refuse("hidden_act", "expected \"silu\", the only supported activation, found {}",
              in_quotes(act));
  if (in.find("quantization_config") != nullptr) {
    in.refuse("quantization_config",
              "expected none, found a model with quantized weights; use the original model");
  }
}

void read_heads(const Fields& in, const Architecture& a, ModelConfig& c) {
  c.heads = in.integer("num_attention_heads");
  // For Mistral absent and null differ: absent means 8.
  const bool absent = !in.mentions("num_key_value_heads");
  c.kv_heads = in.integer("num_key_value_heads", absent && a.kv_heads > 0 ? a.kv_heads : c.heads);
  if (in.find("head_dim") != nullptr || a.head_dim > 0) {
    c.head_dim = in.integer("head_dim", a.head_dim);
  } else if (c.heads > 0) {
    if (c.hidden % c.heads != 0) {
      in.refuse("num_attention_heads",
                "expected a divisor of hidden_size, which is {}, found {}; or give head_dim",
                c.hidden, c.heads);
    }
    c.head_dim = c.hidden / c.heads;
  }
}

void read_biases(const Fields& in, const Architecture& a, ModelConfig& c) {
  c.o_bias = a.attention_bias && in.flag("attention_bias", false);
  c.qkv_bias = a.qkv_bias || c.o_bias;
  c.mlp_bias = a.mlp_bias && in.flag("mlp_bias", false);
  c.qk_norm = a.qk_norm;
}

// Number of layers with a sliding window; max_window_layers is a key of Qwen.
int64_t windowed_layers(const Fields& in, int64_t layers) {
  const json* types = in.find("layer_types");
  if (types == nullptr) {
    const int64_t first = in.integer("max_window_layers", 28);
    return std::clamp<int64_t>(layers - std::max<int64_t>(first, 0), 0, layers);
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers) {
    in.refuse("layer_types", "expected a list of {} names, one per layer, found {} of {}", layers,
              shown(*types), types->size());
  }
  int64_t count = 0;
  for (const json& type : *types) {
    if (type == "sliding_attention")
      ++count;
    else if (type != "full_attention")
      in.refuse("layer_types", "expected \"full_attention\" or \"sliding_attention\", found {}",
                shown(type));
  }
  return count;
}

int64_t read_window(const Fields& in, const Architecture& a, int64_t layers) {
  constexpr int64_t kAbsent = 4096;
  const bool gated = a.window == Architecture::Window::gated;
  if (a.window == Architecture::Window::never) return 0;
  if (gated && !in.flag("use_sliding_window", false)) return 0;
  if (in.mentions("sliding_window") && in.find("sliding_window") == nullptr) return 0;
  const int64_t window = in.integer("sliding_window", kAbsent);
  if (window < 1) in.refuse("sliding_window", "expected a whole number above 0, found {}", window);
  if (!gated && in.find("layer_types") == nullptr) return window;
  const int64_t count = windowed_layers(in, layers);
  if (count != 0 && count != layers) {
    in.refuse(in.find("layer_types") != nullptr ? "layer_types" : "max_window_layers",
              "expected the sliding window in all layers or in none, found it in {} of {}", count,
              layers);
  }
  return count == 0 ? 0 : window;
}

// transformers 4 writes rope_theta and rope_scaling; version 5 writes rope_parameters with both.
// Returns the key of the object that was read.
std::string_view read_rope(const Fields& in, ModelConfig& c) {
  const json* old = in.find("rope_scaling");
  const bool has_old = old != nullptr && !(old->is_object() && old->empty());
  const std::string_view key = has_old ? "rope_scaling" : "rope_parameters";
  c.rope_theta = in.number("rope_theta", 10000);
  if (in.number("partial_rotary_factor", 1) != 1)
    in.refuse("partial_rotary_factor", "expected 1 or none: RoPE must cover whole heads");
  if (in.find(key) == nullptr) return key;

  const Fields rope = in.object(key);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  if (rope.number("partial_rotary_factor", 1) != 1)
    rope.refuse("partial_rotary_factor", "expected 1 or none: RoPE must cover whole heads");
  const char* type_key = rope.find("rope_type") == nullptr ? "type" : "rope_type";
  const std::string type = rope.text(type_key, "default");
  if (type == "default") return key;
  RopeScaling& r = c.rope_scaling;
  if (type == "linear") {
    r.kind = RopeScaling::Kind::linear;
    r.factor = rope.number("factor");
  } else if (type == "llama3") {
    r.kind = RopeScaling::Kind::llama3;
    r.factor = rope.number("factor");
    r.low_freq_factor = rope.number("low_freq_factor");
    r.high_freq_factor = rope.number("high_freq_factor");
    constexpr const char* kOriginal = "original_max_position_embeddings";
    r.original_positions = rope.integer(kOriginal, in.integer(kOriginal, c.max_positions));
  } else {
    rope.refuse(type_key, "expected one of default, linear, llama3, found {}", in_quotes(type));
  }
  return key;
}

DType read_dtype(const Fields& in) {
  const char* key = in.find("dtype") == nullptr ? "torch_dtype" : "dtype";
  const std::string name = in.text(key, "float32");
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  in.refuse(key, "expected one of float32, bfloat16, float16, found {}", in_quotes(name));
}

// An id, a list of ids, or null. Some files use -1 for none.
std::vector<int64_t> read_ids(const Fields& in, std::string_view key, int64_t absent) {
  std::vector<int64_t> ids;
  const json* value = in.find(key);
  if (value == nullptr) {
    if (!in.mentions(key) && absent >= 0) ids.push_back(absent);
  } else if (value->is_array()) {
    for (const json& id : *value) ids.push_back(in.to_integer(key, id));
  } else if (const int64_t id = in.to_integer(key, *value); id != -1) {
    ids.push_back(id);
  }
  return ids;
}

void read_tokens(const Fields& in, const Architecture& a, ModelConfig& c) {
  // The default of transformers may lie outside a tiny vocabulary.
  const auto absent = [&](int64_t id) { return id < c.vocab ? id : -1; };
  const std::vector<int64_t> bos = read_ids(in, "bos_token_id", absent(a.bos_id));
  if (bos.size() > 1) in.refuse("bos_token_id", "expected one id, found a list of {}", bos.size());
  c.bos_id = bos.empty() ? -1 : bos[0];
  c.eos_ids = read_ids(in, "eos_token_id", absent(a.eos_id));
}

// Reports the problem at the key under which this file has it.
void refuse_problem(const Fields& in, std::string_view rope_key, const ModelConfig& c) {
  const auto p = find_problem(c);
  if (!p) return;
  const std::string key = p->key.substr(p->key.find('.') + 1);  // the whole key if it has no dot
  const bool is_rope = key != p->key || key == "rope_theta";
  if (is_rope && in.find(rope_key) != nullptr && in.object(rope_key).mentions(key))
    in.object(rope_key).refuse(key, "{}", p->message);
  in.refuse(key, "{}", p->message);
}

}  // namespace

ModelConfig parse_config(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where);
  if (!root.is_object())
    fail(Fault::file, "{}: expected an object, found {}", text_location(text, where, 0),
         shown(root));
  const Fields in(text, where, root);
  const Architecture& a = read_architecture(in);
  refuse_what_we_lack(in);

  ModelConfig c;
  c.architecture = a.name;
  c.vocab = in.integer("vocab_size");
  c.hidden = in.integer("hidden_size");
  c.intermediate = in.integer("intermediate_size");
  c.layers = in.integer("num_hidden_layers");
  read_heads(in, a, c);
  c.max_positions = in.integer("max_position_embeddings", a.max_positions);
  c.norm_eps = in.number("rms_norm_eps", 1e-6);
  const std::string_view rope_key = read_rope(in, c);
  c.tied = in.flag("tie_word_embeddings", false);
  read_biases(in, a, c);
  c.init_std = in.number("initializer_range", 0.02);
  c.dtype = read_dtype(in);
  read_tokens(in, a, c);
  refuse_problem(in, rope_key, c);  // before the window, whose check needs a valid number of layers
  c.sliding_window = read_window(in, a, c.layers);
  refuse_problem(in, rope_key, c);
  return c;
}

}  // namespace capstan
