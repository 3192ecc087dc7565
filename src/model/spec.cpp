#include "model/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace capstan {
namespace {

// Fills a table from the top of the model to its bottom.
class SpecBuilder {
 public:
  explicit SpecBuilder(const ModelConfig& config) : c_(config) { spec_.config = config; }

  ModelSpec build() {
    spec_.embedding = matrix(0, "model.embed_tokens.weight", c_.vocab, c_.hidden);
    for (int layer = 0; layer < c_.layers; ++layer) spec_.blocks.push_back(block(layer));
    const int last = spec_.units() - 1;
    spec_.final_norm = vector(last, "model.norm.weight", c_.hidden, Init::ones);
    spec_.head = c_.tied ? spec_.embedding : matrix(last, "lm_head.weight", c_.vocab, c_.hidden);
    return std::move(spec_);
  }

 private:
  struct Piece {
    const char* name;
    int64_t rows;
  };

  BlockIndex block(int layer) {
    const int unit = layer + 1;
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
    const int64_t q = c_.q_width(), kv = c_.kv_width(), h = c_.hidden, f = c_.intermediate;

    BlockIndex b;
    b.input_norm = vector(unit, prefix + "input_layernorm.weight", h, Init::ones);
    b.qkv = fused(unit, attn, "qkv_proj", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}, h);
    if (c_.qkv_bias)
      b.qkv_bias =
          fused(unit, attn, "qkv_proj", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}, 0);
    if (c_.qk_norm) {
      b.q_norm = vector(unit, attn + "q_norm.weight", c_.head_dim, Init::ones);
      b.k_norm = vector(unit, attn + "k_norm.weight", c_.head_dim, Init::ones);
    }
    b.o = matrix(unit, attn + "o_proj.weight", h, q);
    if (c_.o_bias) b.o_bias = vector(unit, attn + "o_proj.bias", h, Init::zeros);
    b.post_norm = vector(unit, prefix + "post_attention_layernorm.weight", h, Init::ones);
    b.gate_up = fused(unit, mlp, "gate_up_proj", {{"gate_proj", f}, {"up_proj", f}}, h);
    if (c_.mlp_bias)
      b.gate_up_bias = fused(unit, mlp, "gate_up_proj", {{"gate_proj", f}, {"up_proj", f}}, 0);
    b.down = matrix(unit, mlp + "down_proj.weight", h, f);
    if (c_.mlp_bias) b.down_bias = vector(unit, mlp + "down_proj.bias", h, Init::zeros);
    return b;
  }

  int add(Param param) {
    spec_.params.push_back(std::move(param));
    return static_cast<int>(spec_.params.size()) - 1;
  }

  int matrix(int unit, const std::string& name, int64_t rows, int64_t cols) {
    return add({name, {rows, cols}, unit, Init::normal, true, {{name, 0, rows}}});
  }

  int vector(int unit, const std::string& name, int64_t size, Init init) {
    return add({name, {size}, unit, init, true, {{name, 0, size}}});
  }

  // Several linear maps of the same input, stored as one; cols == 0: their biases.
  int fused(int unit, const std::string& prefix, const char* name,
            std::initializer_list<Piece> pieces, int64_t cols) {
    const char* what = cols > 0 ? "weight" : "bias";
    Param p;
    p.name = fmt::format("{}{}.{}", prefix, name, what);
    p.unit = unit;
    p.init = cols > 0 ? Init::normal : Init::zeros;
    int64_t rows = 0;
    for (const Piece& piece : pieces) {
      p.parts.push_back({fmt::format("{}{}.{}", prefix, piece.name, what), rows, piece.rows});
      rows += piece.rows;
    }
    p.shape = cols > 0 ? Shape{rows, cols} : Shape{rows};
    return add(std::move(p));
  }

  const ModelConfig& c_;
  ModelSpec spec_;
};

// Appends the adapters to a model's table.
class LoraBuilder {
 public:
  LoraBuilder(ModelSpec& spec, const LoraOptions& options) : spec_(spec), o_(options) {}

  void build() {
    for (BlockIndex& b : spec_.blocks) {
      b.qkv_lora = adapter(b.qkv, {o_.query, o_.key, o_.value});
      b.o_lora = adapter(b.o, {o_.projection});
      b.gate_up_lora = adapter(b.gate_up, {o_.mlp, o_.mlp});
      b.down_lora = adapter(b.down, {o_.mlp});
    }
    if (!o_.head) return;
    spec_.head_lora = adapter(spec_.head, {true}, "lm_head.weight");
    for (const int i : {spec_.head_lora.a, spec_.head_lora.b})
      spec_.params[static_cast<size_t>(i)].unit = spec_.units() - 1;
  }

 private:
  // PEFT's name of lora_A or lora_B for "model.…q_proj.weight".
  static std::string peft_name(std::string name, char which) {
    name.resize(name.size() - std::string_view("weight").size());
    return fmt::format("base_model.model.{}lora_{}.weight", name, which);
  }

  // `name`, if given, replaces the weight's name: a tied head is stored as the embedding.
  AdapterIndex adapter(int weight, std::initializer_list<bool> adapted,
                       const char* name = nullptr) {
    if (std::count(adapted.begin(), adapted.end(), true) == 0) return {};
    const Param w = spec_.params[static_cast<size_t>(weight)];  // a copy: the table grows
    Param a, b;
    a.name = peft_name(name == nullptr ? w.name : name, 'A');
    b.name = peft_name(name == nullptr ? w.name : name, 'B');
    a.unit = b.unit = w.unit;
    a.adapter = b.adapter = true;
    a.init = Init::uniform;
    b.init = Init::zeros;
    AdapterIndex index;
    int64_t inner = 0, outputs = 0;
    for (size_t p = 0; p < w.parts.size(); ++p) {
      if (!adapted.begin()[p]) continue;
      const Part& part = w.parts[p];
      const std::string part_name = name == nullptr ? part.name : name;
      a.parts.push_back({peft_name(part_name, 'A'), inner, o_.r});
      b.parts.push_back({peft_name(part_name, 'B'), outputs, part.rows});
      index.columns.push_back({part.first_row, part.rows});
      inner += o_.r;
      outputs += part.rows;
    }
    a.shape = {inner, w.shape[1]};
    b.shape = {outputs, o_.r};
    index.number = adapters_++;
    index.a = static_cast<int>(spec_.params.size());
    index.b = index.a + 1;
    spec_.params.push_back(std::move(a));
    spec_.params.push_back(std::move(b));
    return index;
  }

  ModelSpec& spec_;
  const LoraOptions& o_;
  int adapters_ = 0;
};

}  // namespace

int64_t ModelSpec::trainable_count() const {
  int64_t n = 0;
  for (const Param& p : params) n += p.trainable ? p.shape.numel() : 0;
  return n;
}

int ModelSpec::lowest_trainable_unit() const {
  int lowest = units();
  for (const Param& p : params)
    if (p.trainable) lowest = std::min(lowest, p.unit);
  return lowest;
}

int64_t ModelSpec::parameter_count() const {
  int64_t n = 0;
  for (const Param& p : params) n += p.shape.numel();
  return n;
}

ModelSpec make_spec(const ModelConfig& config, Decay decay, const std::optional<LoraOptions>& lora,
                    Quantize quantize) {
  check_config(config);
  ModelSpec spec = SpecBuilder(config).build();
  for (Param& p : spec.params) p.trainable = !lora && quantize == Quantize::none;
  for (const BlockIndex& b : spec.blocks)
    for (const int i : {b.qkv, b.o, b.gate_up, b.down})
      spec.params[static_cast<size_t>(i)].quantize = quantize;
  if (lora) {
    check_lora(*lora);
    LoraBuilder(spec, *lora).build();
    spec.lora = lora;
  }
  for (Param& p : spec.params) p.decay = decay == Decay::all || p.shape.rank() > 1;
  return spec;
}

}  // namespace capstan
