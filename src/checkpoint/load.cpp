#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/load_with_sums.h"
#include "checkpoint/stored_parts.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Param& row(const Parameters& params, int i) {
  return params.spec().params[static_cast<size_t>(i)];
}

void quantize_tensors(Queue& q, Parameters& params, const TensorEntries& found, WeightSums* sums) {
  std::vector<std::byte> room;  // one tensor at a time
  for (int i = 0; i < params.count(); ++i) {
    const Param& p = row(params, i);
    if (params.quantized(i) == nullptr || !params.has(p.unit)) continue;
    for (size_t k = 0; k < p.parts.size(); ++k) {
      const auto [file, tensor] = found.find(p.parts[k].name)->second;
      const auto bytes = file->read(*tensor, 0, tensor->numel(), room);
      if (sums != nullptr) {
        WeightSums::Sum sum{.of = tensor->nbytes()};
        sum.add(0, bytes);
        sums->add(tensor->name, "all", sum);
      }
      const Tensor part(room.data(), *tensor->type.dtype, p.parts[k].whole);
      params.store_frozen(q, i, static_cast<int>(k), part);
    }
  }
}

// generation_config.json may have more end-of-text ids than config.json. Ids outside the vocabulary
// are harmless.
void add_stops(ModelConfig& c, const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  const std::string text = read_text(path), where = path.string();
  const json root = parse_json(text, where);
  require(root.is_object(), Fault::file, "{}: expected an object, found {}",
          text_location(text, where, 0), shown(root));
  const json ids = root.value("eos_token_id", json());
  for (const json& id : ids.is_array() || ids.is_null() ? ids : json::array({ids})) {
    if (!id.is_number_integer())
      fail(Fault::file, "{}: eos_token_id: expected whole numbers, found {}",
           json_location(text, where, {"eos_token_id"}), shown(id));
    const auto n = id.get<int64_t>();
    if (n >= 0 && n < c.vocab &&
        std::find(c.eos_ids.begin(), c.eos_ids.end(), n) == c.eos_ids.end())
      c.eos_ids.push_back(n);
  }
}

}  // namespace

ModelConfig read_config(const fs::path& dir) {
  const fs::path path = dir / "config.json";
  ModelConfig config = parse_config(read_text(path), path.string());
  add_stops(config, dir / "generation_config.json");
  return config;
}

std::vector<SavedTensor> stored_parts(const Parameters& params, Rows rows) {
  std::vector<SavedTensor> parts;
  const std::vector<Range>& ranges = params.stored_ranges();
  for (int i = 0; i < params.count(); ++i) {
    const Param& p = row(params, i);
    if (rows_of(p) != rows) continue;
    const PrecisionTypes types = params.types();
    const DType type = p.trainable ? types.master : types.compute;
    // The ranges are in the order of the parameters.
    const auto begin = std::partition_point(ranges.begin(), ranges.end(),
                                            [&](const Range& r) { return r.param < i; });
    for (int part = 0; part < std::ssize(p.parts); ++part) {
      SavedTensor t = saved_part(p, i, part, type);
      for (auto r = begin; r != ranges.end() && r->param == i; ++r)
        if (const Range mine = overlap(t.range, *r); mine.count > 0)
          t.pieces.push_back({t.within(mine).first, params.stored(mine)});
      parts.push_back(std::move(t));
    }
  }
  return parts;
}

bool has_head_copy(const Parameters& params, Rows rows, const ModelFolder& folder) {
  const auto& lora = params.spec().lora;
  return rows == Rows::adapters && lora && lora->head && folder.tensors().contains(kHeadCopy);
}

SavedTensor head_copy(const Parameters& params) {
  const int head = params.spec().head;
  for (SavedTensor& t : stored_parts(params, Rows::base)) {
    if (t.range.param != head) continue;
    t.name = kHeadCopy;
    return std::move(t);
  }
  fail(Fault::bug, "a model without a head");
}

void check_weights(const Parameters& params, Rows rows, const ModelFolder& folder,
                   const fs::path& dir) {
  const ModelConfig& config = params.spec().config;
  const auto is_harmless = [&](const std::string& name) {
    return rows == Rows::base &&
           (name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight"));
  };
  std::vector<SavedTensor> wanted = stored_parts(params, rows);
  if (has_head_copy(params, rows, folder)) wanted.push_back(head_copy(params));
  const std::string problems = differences(wanted, folder.tensors(), {.may_ignore = is_harmless});
  if (problems.empty()) return;
  require(rows == Rows::base, Fault::file,
          "{}: the tensors do not match this model's adapters ({}, {}, r {}): {}; use the base "
          "model and the adapter_config.json that belong to them",
          (dir / kAdapterFile).string(), config.architecture, count(config.layers, "layer"),
          params.spec().lora->r, problems);
  fail(Fault::file,
       "{}: the tensors do not match config.json ({}, vocab_size {}, {}): {}; use the config.json "
       "that belongs to these weights",
       dir.string(), config.architecture, config.vocab, count(config.layers, "layer"), problems);
}

namespace {

// If the config ties the head to the embedding, a head in the files is usually a copy. Compares
// only the beginning: another head differs there.
void warn_of_another_head(const Parameters& params, const ModelFolder& folder,
                          const fs::path& dir) {
  const auto head = folder.tensors().find("lm_head.weight");
  std::error_code error;
  if (!params.spec().config.tied || head == folder.tensors().end() ||
      !fs::exists(dir / "config.json", error) || !read_config(dir).tied)
    return;
  const auto embedding = folder.tensors().find(row(params, params.spec().embedding).parts[0].name);
  if (head->second.tensor->type.dtype != embedding->second.tensor->type.dtype) return;
  constexpr int64_t kValues = 4096;
  const auto start_of = [&](const TensorEntry& entry) {
    std::vector<std::byte> bytes;
    entry.file->read(*entry.tensor, 0, std::min(kValues, entry.tensor->numel()), bytes);
    return bytes;
  };
  if (start_of(head->second) == start_of(embedding->second)) return;
  log::warn(
      "{}: config.json ties the output head to the embedding, but the files have a different "
      "lm_head.weight, which is ignored. To use it, set tie_word_embeddings to false in "
      "config.json",
      dir.string());
}

}  // namespace

void load_parameters(Queue& q, Parameters& params, const fs::path& dir) {
  load_parameters(q, params, dir, nullptr);
}

void load_parameters(Queue& q, Parameters& params, const fs::path& dir, WeightSums* sums) {
  const ModelFolder folder(dir);
  check_weights(params, Rows::base, folder, dir);
  if (q.device() == Device::sim) return;
  warn_of_another_head(params, folder, dir);
  read_tensors(q, stored_parts(params, Rows::base), folder.tensors(), sums);
  quantize_tensors(q, params, folder.tensors(), sums);
  params.refresh_weights(q);
}

}  // namespace capstan
