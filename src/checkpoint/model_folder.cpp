#include "checkpoint/model_folder.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/adapter.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/torch_file.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSafetensors = ".safetensors";
constexpr const char* kPickle = ".bin";

[[noreturn]] void fail_without_weights(const fs::path& dir) {
  std::error_code error;
  require(fs::is_directory(dir, error), Fault::file, "{}: expected a model's folder, found {}",
          dir.string(), fs::exists(dir, error) ? "a file" : "nothing");
  require(
      !fs::exists(dir / "lit_model.pth", error), Fault::file,
      "{}: expected model.safetensors, found LitGPT's lit_model.pth, which has other tensor names; "
      "convert the model with `litgpt convert_from_litgpt`, or use the Hugging Face model",
      dir.string());
  require(!is_adapter(dir), Fault::file,
          "{}: expected a model's weights, found an adapter, which needs its base model; give the "
          "base model's folder (base_model_name_or_path in adapter_config.json), or merge the two",
          dir.string());
  fail(Fault::file,
       "{}: expected model.safetensors, pytorch_model.bin or an index of either's shards, found "
       "none of them",
       dir.string());
}

// The value of a key that must be an object.
const json& object_in(const json& root, const char* key, std::string_view text,
                      const std::string& where) {
  const auto it = root.find(key);
  if (it == root.end() || !it->is_object()) {
    fail(Fault::file, "{}: {}: expected an object, found {}", json_location(text, where, {key}),
         key, it == root.end() ? "none" : shown(*it));
  }
  return *it;
}

// A shard's name is not trusted: it must not lead out of the folder.
bool is_plain_name(const std::string& name, std::string_view ending) {
  return name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
         name.find("..") == std::string::npos && name.ends_with(ending);
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& dir) : dir_(dir) {
  std::error_code error;
  if (fs::exists(dir / "model.safetensors", error))
    add_file(dir / "model.safetensors");
  else if (fs::exists(dir / "model.safetensors.index.json", error))
    open_shards(dir / "model.safetensors.index.json", kSafetensors);
  else if (fs::exists(dir / "pytorch_model.bin", error))
    add_file(dir / "pytorch_model.bin");
  else if (fs::exists(dir / "pytorch_model.bin.index.json", error))
    open_shards(dir / "pytorch_model.bin.index.json", kPickle);
  else if (fs::exists(dir / "model.bin", error))  // from `litgpt download`, see below
    add_file(dir / "model.bin");
  else
    fail_without_weights(dir);
}

ModelFolder ModelFolder::of_adapter(const fs::path& dir) {
  std::error_code error;
  const fs::path path = dir / kAdapterFile;
  if (!fs::exists(path, error))
    fail(Fault::file, "{}: expected an adapter's weights, found {}", path.string(),
         fs::exists(dir / "adapter_model.bin", error)
             ? "adapter_model.bin, a pickle; save the adapter with safe_serialization=True"
         : fs::exists(dir / "config.json", error)
             ? "only a model; give the folder of an adapter, or train the model itself"
             : "none");
  ModelFolder folder;
  folder.dir_ = dir;
  folder.add_file(path);
  return folder;
}

mode_t ModelFolder::mode() const {
  mode_t common = 0777;
  for (const auto& file : files_) common &= file->mode();
  return common;
}

const TensorFile& ModelFolder::add_file(const fs::path& path) {
  if (path.extension() == kSafetensors)
    files_.push_back(std::make_unique<SafetensorsFile>(path));
  else
    files_.push_back(std::make_unique<TorchFile>(path));
  const TensorFile& file = *files_.back();
  for (const StoredTensor& t : file.tensors()) tensors_.emplace(t.name, TensorEntry{&file, &t});
  return file;
}

void ModelFolder::open_shards(const fs::path& index, std::string_view ending) {
  const std::string text = read_text(index), where = index.string();
  const json root = parse_json(text, where);
  require(root.is_object(), Fault::file, "{}: expected an object, found {}",
          text_location(text, where, 0), shown(root));
  std::map<std::string, const TensorFile*> shards;
  int64_t total = 0;
  for (const auto& [name, value] : object_in(root, "weight_map", text, where).items()) {
    // A separate name for the binding: C++20 lets lambdas capture bindings, Clang 14 does not.
    const auto refuse = [&, &name = name](const std::string& what) {
      fail(Fault::file, "{}: {}: {}", json_location(text, where, {"weight_map", name}),
           in_quotes(name), what);
    };
    if (!value.is_string() || !is_plain_name(value.get_ref<const std::string&>(), ending))
      refuse(fmt::format("expected the name of a {} file in this folder, found {}", ending,
                         shown(value)));
    const auto& shard = value.get_ref<const std::string&>();
    std::error_code error;
    if (!shards.contains(shard)) {
      fs::path file = dir_ / shard;
      // `litgpt download` converts the shards to pickles, but leaves the index.
      if (!fs::exists(file, error)) file.replace_extension(kPickle);
      if (!fs::exists(file, error))
        refuse(fmt::format("expected the file {}, found none; download it", in_quotes(shard)));
      shards[shard] = &add_file(file);
    }
    const StoredTensor* tensor = shards[shard]->find(name);
    if (tensor == nullptr)
      refuse("expected it in " + in_quotes(shard) + ", which has no such tensor");
    tensors_[name] = {shards[shard], tensor};
    total += tensor->numel() * tensor->type.size;
  }
  // Not an error: writers disagree on whether shared tensors count twice.
  const auto metadata = root.find("metadata");
  if (metadata == root.end() || !metadata->is_object()) return;
  const auto size = metadata->find("total_size");
  if (size != metadata->end() && size->is_number() &&
      size->get<double>() != static_cast<double>(total))
    log::warn("{}: total_size says {}, the tensors have {}", where, shown(*size),
              count(total, "byte"));
}

}  // namespace capstan
