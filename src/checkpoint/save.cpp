#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A tensor to write: rows of a stored parameter.
struct Source {
  SafetensorsWriter::Item item;
  Tensor tensor;
  int64_t nbytes() const { return tensor.numel() * size_of(item.dtype); }
};

struct Shard {
  std::vector<Source> sources;
  int64_t bytes = 0;
};

std::vector<Shard> cut_into_shards(const Parameters& params, DType dtype, int64_t max_bytes) {
  std::vector<Shard> shards(1);
  for (int i = 0; i < params.count(); ++i) {
    for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts) {
      Source source{{part.name, dtype, {}}, params.stored(i).rows(part.first_row, part.rows)};
      for (int d = 0; d < source.tensor.rank(); ++d)
        source.item.shape.push_back(source.tensor.dim(d));
      const int64_t bytes = source.nbytes();
      if (!shards.back().sources.empty() && shards.back().bytes + bytes > max_bytes)
        shards.emplace_back();
      shards.back().sources.push_back(std::move(source));
      shards.back().bytes += bytes;
    }
  }
  return shards;
}

constexpr int64_t kBlockBytes = 4 << 20;

void append(Queue& q, SafetensorsWriter& file, const Source& source) {
  const Tensor& t = source.tensor;
  const DType type = source.item.dtype;
  const int64_t row = t.numel() / t.dim(0);
  const int64_t rows = std::min(t.dim(0), std::max<int64_t>(1, kBlockBytes / (row * 4)));
  std::vector<std::byte> here(static_cast<size_t>(rows * row * size_of(t.dtype())));
  std::vector<std::byte> block(static_cast<size_t>(rows * row * size_of(type)));
  for (int64_t i = 0; i < t.dim(0); i += rows) {
    const int64_t n = std::min(rows, t.dim(0) - i);
    q.download(here.data(), t.rows(i, n));
    require(convert(block.data(), type, here.data(), t.dtype(), n * row), Fault::usage,
            "{}: has values that {} cannot hold; save the model as bf16 or f32", source.item.name,
            name_of(type));
    file.append(std::span(block).first(static_cast<size_t>(n * row * size_of(type))));
  }
}

void write_shard(Queue& q, const Shard& shard, const fs::path& path) {
  std::vector<SafetensorsWriter::Item> items;
  for (const Source& s : shard.sources) items.push_back(s.item);
  // transformers refuses files that do not say which framework's layout they have.
  SafetensorsWriter file(path, items, {{"format", "pt"}});
  for (const Source& s : shard.sources) append(q, file, s);
  file.commit();
}

void write_shards(Queue& q, const std::vector<Shard>& shards, const fs::path& folder) {
  if (shards.size() == 1) return write_shard(q, shards[0], folder / "model.safetensors");
  json weight_map = json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(q, shards[i], folder / name);
    for (const Source& s : shards[i].sources) weight_map[s.item.name] = name;
    total += shards[i].bytes;
  }
  // Last: a folder with an index has all its shards.
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_text(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::string generation_config_json(const ModelConfig& c) {
  json out = {{"_from_model_config", true}};
  if (c.bos_id >= 0) out["bos_token_id"] = c.bos_id;
  if (c.eos_ids.size() == 1) out["eos_token_id"] = c.eos_ids[0];
  if (c.eos_ids.size() > 1) out["eos_token_id"] = c.eos_ids;
  return out.dump(2) + "\n";
}

}  // namespace

void write_model(Queue& q, const Parameters& params, const fs::path& folder,
                 const SaveOptions& options) {
  const DType dtype = options.dtype.value_or(params.types().master);
  require(is_weight_type(dtype), Fault::usage, "weights are saved as f32, bf16 or f16, not {}",
          name_of(dtype));
  ModelConfig config = params.spec().config;
  config.dtype = dtype;
  const auto shards = cut_into_shards(params, dtype, options.max_shard_bytes);
  int64_t bytes = 1 << 20;  // for headers and small files
  for (const Shard& s : shards) bytes += s.bytes;
  require_space(folder, bytes);
  write_text(folder / "config.json", config_json(config));
  write_text(folder / "generation_config.json", generation_config_json(config));
  write_shards(q, shards, folder);
}

void save_model(Queue& q, const Parameters& params, const fs::path& dir,
                const SaveOptions& options) {
  NewFolder folder(dir);
  write_model(q, params, folder.path(), options);
  folder.commit();
}

}  // namespace capstan
