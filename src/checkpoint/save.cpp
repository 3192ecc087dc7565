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

Manifest write_model(Queue& q, const Parameters& params, const fs::path& folder,
                     const SaveOptions& options) {
  const PrecisionTypes types = params.types();
  const DType dtype = options.dtype.value_or(params.spec().lora ? types.compute : types.master);
  require(is_weight_type(dtype), Fault::usage, "weights are saved as f32, bf16 or f16, not {}",
          name_of(dtype));
  ModelConfig config = params.spec().config;
  config.dtype = dtype;
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i < params.count(); ++i) {
    const Param& p = params.spec().params[static_cast<size_t>(i)];
    require(p.quantize == Quantize::none, Fault::usage,
            "{}: is quantized as {}, and a model's files hold f32, bf16 or f16; load the model "
            "without quantization to save it",
            p.name, name_of(p.quantize));
    if (p.adapter) continue;
    for (const Part& part : p.parts)
      tensors.push_back(
          tensor_to_write(part.name, params.stored(i).rows(part.first_row, part.rows), dtype, &q));
  }
  Manifest sums;
  sums["config.json"] = write_text(folder / "config.json", config_json(config));
  sums["generation_config.json"] =
      write_text(folder / "generation_config.json", generation_config_json(config));
  write_weights(folder, tensors, options.max_shard_bytes, Threads::all, sums);
  return sums;
}

void save_model(Queue& q, const Parameters& params, const fs::path& dir,
                const SaveOptions& options) {
  NewFolder folder(dir);
  write_manifest(folder.path(), write_model(q, params, folder.path(), options));
  folder.commit();
}

}  // namespace capstan
