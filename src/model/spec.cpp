#include "model/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace capstan {
namespace {

// The rows or columns of a tensor that a rank has; all of them by default.
struct Cut {
  int64_t whole = 0;
  Span own;
  Span copies;  // the ranks that have the same
};

// Fills a table from the top of the model to its bottom.
class SpecBuilder {
 public:
  SpecBuilder(const ModelConfig& config, const LayerShare& share) : c_(config), share_(share) {
    spec_.config = config;
    spec_.share = share;
  }

  ModelSpec build() {
    const Cut vocab = only_here(c_.vocab, share_.vocab), hidden = all(c_.hidden);
    spec_.embedding = matrix(0, "model.embed_tokens.weight", vocab, hidden);
    for (int layer = 0; layer < c_.layers; ++layer) spec_.blocks.push_back(block(layer));
    const int last = spec_.units() - 1;
    spec_.final_norm = vector(last, "model.norm.weight", c_.hidden, Init::ones);
    spec_.head = c_.tied ? spec_.embedding : matrix(last, "lm_head.weight", vocab, hidden);
    return std::move(spec_);
  }

 private:
  struct Piece {
    const char* name;
    Cut rows;
  };

  Cut all(int64_t n) const { return {n, {0, n}, {0, share_.ranks().size}}; }
  Cut only_here(int64_t n, const Span& own) const { return {n, own, {share_.ranks().rank, 1}}; }
  static Span channels(const Span& heads, int64_t head_dim) {
    return {heads.first * head_dim, heads.count * head_dim};
  }

  BlockIndex block(int layer) {
    const int unit = layer + 1;
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
    const HeadShare& heads = share_.attention;
    const Cut hidden = all(c_.hidden);
    const Cut q = only_here(c_.q_width(), channels(heads.heads, c_.head_dim));
    const Cut kv{c_.kv_width(), channels(heads.kv_heads, c_.head_dim), heads.copies};
    const Cut f = only_here(c_.intermediate, share_.intermediate);
    const Pieces qkv{{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}};
    const Pieces gate_up{{"gate_proj", f}, {"up_proj", f}};

    BlockIndex b;
    b.input_norm = vector(unit, prefix + "input_layernorm.weight", c_.hidden, Init::ones);
    b.qkv = fused(unit, attn, "qkv_proj", qkv, hidden);
    if (c_.qkv_bias) b.qkv_bias = fused(unit, attn, "qkv_proj", qkv, {});
    if (c_.qk_norm) {
      b.q_norm = vector(unit, attn + "q_norm.weight", c_.head_dim, Init::ones);
      b.k_norm = vector(unit, attn + "k_norm.weight", c_.head_dim, Init::ones);
    }
    b.o = matrix(unit, attn + "o_proj.weight", hidden, q);
    if (c_.o_bias) b.o_bias = vector(unit, attn + "o_proj.bias", c_.hidden, Init::zeros);
    b.post_norm = vector(unit, prefix + "post_attention_layernorm.weight", c_.hidden, Init::ones);
    b.gate_up = fused(unit, mlp, "gate_up_proj", gate_up, hidden);
    if (c_.mlp_bias) b.gate_up_bias = fused(unit, mlp, "gate_up_proj", gate_up, {});
    b.down = matrix(unit, mlp + "down_proj.weight", hidden, f);
    if (c_.mlp_bias) b.down_bias = vector(unit, mlp + "down_proj.bias", c_.hidden, Init::zeros);
    return b;
  }

  int add(Param param) {
    spec_.params.push_back(std::move(param));
    return static_cast<int>(spec_.params.size()) - 1;
  }

  static Part part(std::string name, int64_t first_row, int64_t whole_first_row, const Cut& rows,
                   const Cut& columns) {
    Part p{.name = std::move(name), .first_row = first_row, .rows = rows.own.count};
    p.whole = columns.whole > 0 ? Shape{rows.whole, columns.whole} : Shape{rows.whole};
    p.row = rows.own.first;
    p.column = columns.own.first;
    p.whole_first_row = whole_first_row;
    // Only one of the two is ever split.
    const bool by_columns = columns.whole > 0 && columns.copies.count < rows.copies.count;
    p.copies = by_columns ? columns.copies : rows.copies;
    return p;
  }

  int matrix(int unit, const std::string& name, const Cut& rows, const Cut& columns) {
    return add({name,
                {rows.own.count, columns.own.count},
                unit,
                Init::normal,
                true,
                {part(name, 0, 0, rows, columns)}});
  }

  int vector(int unit, const std::string& name, int64_t size, Init init) {
    return add({name, {size}, unit, init, true, {part(name, 0, 0, all(size), {})}});
  }

  // Several linear maps of the same input, stored as one; without columns: their biases.
  using Pieces = std::vector<Piece>;
  int fused(int unit, const std::string& prefix, const char* name, const Pieces& pieces,
            const Cut& columns) {
    const bool weight = columns.whole > 0;
    const char* what = weight ? "weight" : "bias";
    Param p;
    p.name = fmt::format("{}{}.{}", prefix, name, what);
    p.unit = unit;
    p.init = weight ? Init::normal : Init::zeros;
    int64_t rows = 0, whole_rows = 0;
    for (const Piece& piece : pieces) {
      p.parts.push_back(part(fmt::format("{}{}.{}", prefix, piece.name, what), rows, whole_rows,
                             piece.rows, columns));
      rows += piece.rows.own.count;
      whole_rows += piece.rows.whole;
    }
    p.shape = weight ? Shape{rows, columns.own.count} : Shape{rows};
    return add(std::move(p));
  }

  const ModelConfig& c_;
  const LayerShare& share_;
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
    int64_t inner = 0, outputs = 0, whole_outputs = 0;
    for (size_t p = 0; p < w.parts.size(); ++p) {
      if (!adapted.begin()[p]) continue;
      const Part& part = w.parts[p];
      const std::string part_name = name == nullptr ? part.name : name;
      a.parts.push_back(part_of_a(peft_name(part_name, 'A'), inner, w, part));
      b.parts.push_back(part_of_b(peft_name(part_name, 'B'), outputs, whole_outputs, w, part));
      index.columns.push_back({part.first_row, part.rows});
      inner += o_.r;
      outputs += part.rows;
      whole_outputs += part.whole[0];
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

  // A has the columns of W that this rank has, B its rows. The one of them that is not split is on
  // every rank.
  Part part_of_a(std::string name, int64_t first_row, const Param& w, const Part& of_w) const {
    Part p{.name = std::move(name), .first_row = first_row, .rows = o_.r};
    p.whole = {o_.r, of_w.whole[1]};
    p.column = of_w.column;
    p.whole_first_row = first_row;
    p.copies = split_by_columns(w) ? of_w.copies : everywhere();
    return p;
  }
  Part part_of_b(std::string name, int64_t first_row, int64_t whole_first_row, const Param& w,
                 const Part& of_w) const {
    Part p{.name = std::move(name), .first_row = first_row, .rows = of_w.rows};
    p.whole = {of_w.whole[0], o_.r};
    p.row = of_w.row;
    p.whole_first_row = whole_first_row;
    p.copies = split_by_columns(w) ? everywhere() : of_w.copies;
    return p;
  }
  static bool split_by_columns(const Param& w) { return w.columns() < w.whole_columns(); }
  Span everywhere() const { return {0, spec_.share.ranks().size}; }

  ModelSpec& spec_;
  const LoraOptions& o_;
  int adapters_ = 0;
};

bool is_double(Quantize kind) {
  return kind == Quantize::nf4_dq || kind == Quantize::fp4_dq;
}
Quantize without_double(Quantize kind) {
  return kind == Quantize::nf4_dq ? Quantize::nf4 : kind == Quantize::fp4_dq ? Quantize::fp4 : kind;
}

// Whether consecutive blocks of so many values of the whole tensor are this rank's or others'.
bool cuts_no_block(const Param& p, const Part& part, int64_t block) {
  const int64_t columns = p.whole_columns();
  if (p.columns() < columns)
    return columns % block == 0 && part.column % block == 0 && p.columns() % block == 0;
  const bool at_end = part.row + part.rows == part.whole[0];
  return part.row * columns % block == 0 && (at_end || part.rows * columns % block == 0);
}

void set_format(Param& p, Quantize kind) {
  p.quantize = p.quantized_as = kind;
  if (kind == Quantize::none || kind == Quantize::int8) return;
  constexpr int64_t kBlockValues = 64, kGroupValues = 256 * kBlockValues;
  bool whole_groups = true;
  for (const Part& part : p.parts) {
    require(cuts_no_block(p, part, kBlockValues), Fault::usage,
            "tensor_parallel: {} would be cut inside of a block of {} quantized values; use fewer "
            "ranks for each layer, or no quantization",
            part.name, kBlockValues);
    whole_groups = whole_groups && p.columns() == p.whole_columns() &&
                   part.row * p.columns() % kGroupValues == 0;
  }
  if (is_double(kind) && !whole_groups) p.quantize = without_double(kind);
}

}  // namespace

int64_t ModelSpec::trainable_count() const {
  int64_t n = 0;
  for (const Param& p : params)
    if (p.trainable)
      for (const Part& part : p.parts) n += part.whole.numel();
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
  for (const Param& p : params)
    for (const Part& part : p.parts) n += part.whole.numel();
  return n;
}

ModelSpec make_spec(const ModelConfig& config, Decay decay, const std::optional<LoraOptions>& lora,
                    Quantize quantize, const LayerSplit& split) {
  check_config(config);
  ModelSpec spec = SpecBuilder(config, layer_share(config, split)).build();
  spec.decay = decay;
  spec.quantize = quantize;
  for (Param& p : spec.params) p.trainable = !lora && quantize == Quantize::none;
  for (const BlockIndex& b : spec.blocks)
    for (const int i : {b.qkv, b.o, b.gate_up, b.down})
      set_format(spec.params[static_cast<size_t>(i)], quantize);
  if (lora) {
    check_lora(*lora);
    LoraBuilder(spec, *lora).build();
    spec.lora = lora;
  }
  for (Param& p : spec.params) p.decay = decay == Decay::all || p.shape.rank() > 1;
  return spec;
}

ModelSpec spec_of_rank(const ModelSpec& spec, int rank) {
  LayerSplit split = spec.share.split;
  split.ranks.rank = rank;
  return make_spec(spec.config, spec.decay, spec.lora, spec.quantize, split);
}

}  // namespace capstan
