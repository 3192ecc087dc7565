#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_parts.h"

namespace capstan {

namespace fs = std::filesystem;

ModelConfig read_config(const fs::path& dir) {
  const fs::path path = dir / "config.json";
  return parse_config(read_text(path), path.string());
}

std::vector<TensorToRead> stored_parts(const Parameters& params) {
  std::vector<TensorToRead> parts;
  for (int i = 0; i < params.count(); ++i)
    for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts)
      parts.push_back({part.name, params.stored(i).rows(part.first_row, part.rows)});
  return parts;
}

void check_weights(const Parameters& params, const ModelFolder& folder, const fs::path& dir) {
  const ModelConfig& config = params.spec().config;
  const auto is_harmless = [&](const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
  };
  const std::string problems =
      differences(stored_parts(params), folder.tensors(), {.may_ignore = is_harmless});
  require(problems.empty(), Fault::file,
          "{}: the tensors are not those that config.json asks for ({}, vocab_size {}, {} layers): "
          "{}; use the config.json that belongs to these weights",
          dir.string(), config.architecture, config.vocab, config.layers, problems);
}

void load_parameters(Queue& q, Parameters& params, const fs::path& dir) {
  const ModelFolder folder(dir);
  check_weights(params, folder, dir);
  read_tensors(q, stored_parts(params), folder.tensors());
  if (q.device() != Device::sim) params.refresh_weights(q);
}

}  // namespace capstan
