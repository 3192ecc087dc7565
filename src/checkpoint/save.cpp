#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_writer.h"

namespace capstan {
namespace fs = std::filesystem;

std::string generation_config_json(const ModelConfig& c) {
  nlohmann::json out = {{"_from_model_config", true}};
  if (c.bos_id >= 0) out["bos_token_id"] = c.bos_id;
  if (c.eos_ids.size() == 1) out["eos_token_id"] = c.eos_ids[0];
  if (c.eos_ids.size() > 1) out["eos_token_id"] = c.eos_ids;
  return out.dump(2) + "\n";
}

namespace {

// A part of a row, merged when it is written.
TensorToWrite merged_to_write(const std::string& name, const Shape& shape, MergedWeights& merged,
                              int i, int part, DType to, Queue& q) {
  TensorToWrite t{{name, to, {shape[0], shape[1]}}, DType::f32, {}};
  t.read = [&merged, &q, i, part, values = Tensor()](int64_t first, int64_t n,
                                                     std::vector<std::byte>& room) mutable {
    if (first == 0) {
      const Tensor matrix = merged.part(i, part);
      values = matrix.reshape({matrix.numel()});
    }
    const Tensor some = values.rows(first, n);
    room.resize(static_cast<size_t>(some.nbytes()));
    q.download(room.data(), some);
    return std::span<const std::byte>(room);
  };
  return t;
}

std::vector<TensorToWrite> tensors_of(Queue& q, const Parameters& params, DType dtype,
                                      MergedWeights* merged) {
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i < params.count(); ++i) {
    const Param& p = params.spec().params[static_cast<size_t>(i)];
    if (p.adapter) continue;
    const bool differs = merged != nullptr && merged->differs(i);
    require(differs || p.quantize == Quantize::none, Fault::usage,
            "{}: is quantized as {}, but a model's files need f32, bf16 or f16; load the model "
            "without quantization to save it",
            p.name, name_of(p.quantize));
    for (size_t k = 0; k < p.parts.size(); ++k) {
      const Part& part = p.parts[k];
      tensors.push_back(differs ? merged_to_write(part.name, {part.rows, p.shape[1]}, *merged, i,
                                                  static_cast<int>(k), dtype, q)
                                : tensor_to_write(part.name,
                                                  params.stored(i).rows(part.first_row, part.rows),
                                                  dtype, &q));
    }
  }
  return tensors;
}

}  // namespace

Manifest write_model(Queue& q, const Parameters& params, const fs::path& folder,
                     const SaveOptions& options) {
  const PrecisionTypes types = params.types();
  const DType dtype = options.dtype.value_or(params.spec().lora ? types.compute : types.master);
  require(is_weight_type(dtype), Fault::usage, "weights are saved as f32, bf16 or f16, not {}",
          name_of(dtype));
  ModelConfig config = params.spec().config;
  config.dtype = dtype;
  const std::vector<TensorToWrite> tensors = tensors_of(q, params, dtype, options.merged);
  Manifest sums;
  sums["config.json"] =
      write_text(folder / "config.json", config_json(config, options.config_like));
  sums["generation_config.json"] =
      write_text(folder / "generation_config.json", generation_config_json(config));
  write_weights(folder, tensors, options.max_shard_bytes, Threads::all, sums);
  return sums;
}

}  // namespace capstan
