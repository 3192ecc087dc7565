#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layer_share.h"
#include "model/lora.h"
#include "ops/quantize.h"
#include "recipe/choices.h"
#include "tensor/tensor.h"

namespace capstan {

// A tensor of the checkpoint, or what this rank has of it, and its rows in the stored parameter.
struct Part {
  std::string name;  // as in Hugging Face's files: "model.layers.0.self_attn.q_proj.weight"
  int64_t first_row = 0;
  int64_t rows = 0;
  // The tensor of the checkpoint, and where this rank's rows and columns begin in it. Of a rank
  // that has all of each layer they are all of it.
  Shape whole{};
  int64_t row = 0, column = 0;
  // The ranks among those that share each layer that have these values. The first one counts and
  // saves them.
  Span copies{0, 1};
  int64_t whole_first_row = 0;  // first_row in the parameter of a model on one rank

  bool copied() const { return copies.count > 1; }
};

enum class Init : uint8_t {
  normal,  // with the config's standard deviation
  ones,
  zeros,
  uniform,  // in ±1/√inputs, as torch and PEFT initialize linear maps
};

// One parameter as stored and trained. q, k and v (and gate and up) are stored as one, because they
// are computed as one product; `parts` lists them.
struct Param {
  std::string
      name;  // the part's name, or a name for the whole: "model.layers.0.self_attn.qkv_proj.weight"
  Shape shape;
  int unit = 0;
  Init init{};
  bool decay = true;  // whether weight decay applies
  std::vector<Part> parts;
  bool trainable = true;  // a frozen one has no gradient, no master, no optimizer state
  bool adapter = false;   // a LoRA parameter: stored in the adapter's files, not the model's
  Quantize quantize = Quantize::none;  // storage format; only for frozen ones
  // The format that its values are quantized to. `quantize` differs from it for columns of a
  // matrix with double quantization: their scales' scales belong to whole rows, so they have the
  // scales themselves.
  Quantize quantized_as = Quantize::none;

  // Values in a row of the checkpoint's tensors, and in one of this rank's.
  int64_t whole_columns() const { return parts[0].whole.rank() > 1 ? parts[0].whole[1] : 1; }
  int64_t columns() const { return shape.rank() > 1 ? shape[1] : 1; }
};

// The adapter of one stored parameter W [O, I] with n adapted parts: A [n r, I] and B [the n parts'
// outputs, r], with the parts' rows in order. Their Part::names are PEFT's:
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
struct AdapterIndex {
  int a = -1, b = -1;  // in ModelSpec::params; -1: no adapter
  int number = 0;      // index among the model's adapters; keys its dropout
  struct Columns {     // columns of W's output that one part of B adds to
    int64_t first = 0, count = 0;
  };
  std::vector<Columns> columns;  // one for each of the n parts

  explicit operator bool() const { return a >= 0; }
};

// Indices of a block's parameters in ModelSpec::params; -1 if the model has none.
struct BlockIndex {
  int input_norm = -1, qkv = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, o = -1, o_bias = -1;
  int post_norm = -1, gate_up = -1, gate_up_bias = -1, down = -1, down_bias = -1;
  AdapterIndex qkv_lora, o_lora, gate_up_lora, down_lora;
};

// The one table of a model's parameters: names, shapes, units, initial values. Checkpoints, the
// optimizer, the plan and the forward pass all iterate over it. Of ranks that share each layer,
// each has a table of its own shares, with the same rows in the same order.
//
// Units, in order: 0 the embedding, 1 … L the blocks, L+1 the final norm and the head. Adapters
// come after all other rows, so that the other indices are the same with and without them.
struct ModelSpec {
  ModelConfig config;  // of the whole model
  LayerShare share;    // of this rank
  std::vector<Param> params;
  int embedding = 0;
  std::vector<BlockIndex> blocks;
  int final_norm = 0;
  int head = 0;  // == embedding if tied
  AdapterIndex head_lora;
  std::optional<LoraOptions> lora;
  Decay decay = Decay::all;
  Quantize quantize = Quantize::none;

  int units() const { return static_cast<int>(config.layers) + 2; }
  int64_t parameter_count() const;  // of all rows, of the whole model
  int64_t trainable_count() const;
  bool trainable(int i) const { return i >= 0 && params[static_cast<size_t>(i)].trainable; }
  // The first unit that has a trainable parameter: no gradient is needed below it. units() if none.
  int lowest_trainable_unit() const;
};

// With LoRA or quantization, only the adapters are trainable. `quantize` is the storage format of
// the blocks' linear maps; the embedding, norms, biases and the head are not quantized. Throws
// Fault::usage for options that check_lora refuses, and for a split that cuts a quantization block.
//
// Shares of layers: q, k, v, gate and up, the embedding and the head are split by rows; o and down
// by columns; norms, and biases of o and down, are on every rank.
ModelSpec make_spec(const ModelConfig& config, Decay decay = Decay::all,
                    const std::optional<LoraOptions>& lora = {}, Quantize quantize = Quantize::none,
                    const LayerSplit& split = {});
// The table of another of the ranks that share each layer.
ModelSpec spec_of_rank(const ModelSpec& spec, int rank);

}  // namespace capstan
