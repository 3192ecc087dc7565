#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/tensor.h"

namespace capstan {

// A tensor of the checkpoint and the rows of the stored parameter that it is.
struct Part {
  std::string name;  // as in Hugging Face's files: "model.layers.0.self_attn.q_proj.weight"
  int64_t first_row = 0;
  int64_t rows = 0;
};

enum class Init : uint8_t { normal, ones, zeros };

// One parameter as it is stored and trained. q, k and v (and gate and up) are stored as one, since
// they are computed as one product; `parts` tells them apart.
struct Param {
  std::string
      name;  // the part's name, or a name for the whole: "model.layers.0.self_attn.qkv_proj.weight"
  Shape shape;
  int unit = 0;
  Init init{};
  bool decay = true;  // whether weight decay applies
  std::vector<Part> parts;
};

// Indices of a block's parameters in ModelSpec::params; -1 where the model has none.
struct BlockIndex {
  int input_norm = -1, qkv = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, o = -1, o_bias = -1;
  int post_norm = -1, gate_up = -1, gate_up_bias = -1, down = -1, down_bias = -1;
};

// The one table of a model's parameters: names, shapes, units, initial values. Checkpoints, the
// optimizer, the plan and the forward pass all walk it.
//
// Units, in order: 0 the embedding, 1 … L the blocks, L+1 the final norm and the head.
struct ModelSpec {
  ModelConfig config;
  std::vector<Param> params;
  int embedding = 0;
  std::vector<BlockIndex> blocks;
  int final_norm = 0;
  int head = 0;  // == embedding where the two are tied

  int units() const { return static_cast<int>(config.layers) + 2; }
  int64_t parameter_count() const;
};

// Weight decay applies to everything, as torch.optim.AdamW has it by itself, or to matrices alone,
// leaving out norms and biases.
enum class Decay : uint8_t { all, matrices };

ModelSpec make_spec(const ModelConfig& config, Decay decay = Decay::all);

}  // namespace capstan
