#include "model/spec.h"

#include <fmt/format.h>

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

  // Several linear maps of one input, stored as one; cols == 0: their biases.
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

}  // namespace

int64_t ModelSpec::parameter_count() const {
  int64_t n = 0;
  for (const Param& p : params) n += p.shape.numel();
  return n;
}

ModelSpec make_spec(const ModelConfig& config, Decay decay) {
  check_config(config);
  ModelSpec spec = SpecBuilder(config).build();
  for (Param& p : spec.params) p.decay = decay == Decay::all || p.shape.rank() > 1;
  return spec;
}

}  // namespace capstan
