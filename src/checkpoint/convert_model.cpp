#include "checkpoint/convert_model.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/output_file.h"
#include "checkpoint/extra_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/tensor_writer.h"
#include "checkpoint/training_state.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// Files of a model's folder that do not depend on how its weights are stored.
constexpr std::array kCompanions = {"generation_config.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "tokenizer.model",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "preprocessor_config.json",
                                    "prompt_style.yaml",
                                    "hyperparameters.yaml",
                                    "LICENSE",
                                    "LICENSE.txt",
                                    "LICENSE.md",
                                    "NOTICE",
                                    "README.md",
                                    "USE_POLICY.md"};

const char* torch_name(DType t) {
  switch (t) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default:
      fail(Fault::usage, "convert: weights are stored as f32, bf16 or f16, not {}", name_of(t));
  }
}

// Sets the new type under the key that the text has; under both keys, if it has none.
std::string with_dtype(const std::string& text, const fs::path& path, DType dtype) {
  auto root = parse_ordered_json(text, path.string());
  require(root.is_object(), Fault::file, "{}: expected an object, found something else",
          text_location(text, path.string(), 0));
  const bool has_new = root.contains("dtype");
  if (has_new) root["dtype"] = torch_name(dtype);
  if (root.contains("torch_dtype") || !has_new) root["torch_dtype"] = torch_name(dtype);
  return root.dump(2) + "\n";
}

bool is_real(const StoredType& type) {
  return type.dtype && is_weight_type(*type.dtype);
}

std::vector<TensorToWrite> tensors_of(const ModelFolder& model, std::optional<DType> dtype) {
  std::vector<TensorToWrite> out;
  for (const auto& [name, entry] : model.tensors()) {
    const StoredType from = entry.tensor->type;
    const StoredType to = dtype && is_real(from) ? StoredType(*dtype) : from;
    const TensorEntry source = entry;
    out.push_back({{name, to, entry.tensor->shape},
                   from,
                   [source](int64_t first, int64_t n, std::vector<std::byte>& room) {
                     return source.file->read(*source.tensor, first, n, room);
                   }});
  }
  return out;
}

// A file in the folder that its manifest does not list; empty if there is none.
std::string foreign_file(const fs::path& folder) {
  std::error_code error;
  Manifest known;
  try {
    if (fs::exists(folder / kManifest, error)) known = read_manifest(folder);
  } catch (const Error& e) {
    fail(Fault::file, "{}\n{} would be replaced: remove it, or write to another folder", e.what(),
         folder.string());
  }
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder, kSkip, error)) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (!entry.is_directory(error) && name != kManifest && !known.contains(name)) return name;
  }
  return "";
}

}  // namespace

void require_apart(const fs::path& to, std::initializer_list<fs::path> sources) {
  for (const fs::path& from : sources)
    require(!lies_in(from, to), Fault::usage,
            "{}: expected another folder to write to; {} would be replaced with it", to.string(),
            from.string());
  std::error_code error;
  require(!fs::exists(to / kOptimizerFile, error), Fault::usage,
          "{}: has a training checkpoint that a run can resume from; write to another folder",
          to.string());
  if (!fs::is_directory(to, error)) return;
  const std::string lost = foreign_file(to);
  require(lost.empty(), Fault::usage,
          "{}: would be replaced, but contains {}, which Capstan did not write; write to another "
          "folder, or move that file",
          to.string(), lost);
}

void commit_apart(NewFolder& folder, const fs::path& to) {
  std::error_code error;
  const fs::path there = fs::weakly_canonical(to, error);
  if (fs::is_directory(there, error) && !fs::is_empty(there, error)) {
    const fs::path moved = move_to_previous(there.parent_path(), {{there}});
    log::info("moved the model that was {} to {}", to.string(), moved.string());
  }
  folder.commit();
}

void convert_model(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  if (options.dtype) torch_name(*options.dtype);  // refuses others
  require(options.max_shard_bytes > 0, Fault::usage, "convert: shards of {} bytes",
          options.max_shard_bytes);
  const ModelFolder model(from);
  ExtraFile config = read_extra(from, "config.json");
  if (options.dtype)
    config.contents = with_dtype(config.contents, from / config.name, *options.dtype);
  require_apart(to, {from});
  NewFolder folder(to);
  std::error_code error;
  Manifest sums;
  sums[config.name] = write_extra(folder.path(), config);
  for (const char* name : kCompanions)
    if (fs::exists(from / name, error) && !fs::is_directory(from / name, error))
      sums[name] = write_extra(folder.path(), read_extra(from, name));
  for (const auto& [name, contents] : options.replaced)
    sums[name] = write_text(folder.path() / name, contents);
  write_weights(folder.path(), tensors_of(model, options.dtype), options.max_shard_bytes,
                Threads::all, sums, model.mode());
  write_manifest(folder.path(), sums);
  commit_apart(folder, to);
}

}  // namespace capstan
