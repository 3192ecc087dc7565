#include "checkpoint/model_folder.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void fail_without_weights(const fs::path& dir) {
  std::error_code error;
  require(fs::is_directory(dir, error), Fault::file, "{}: expected a model's folder, found {}",
          dir.string(), fs::exists(dir, error) ? "a file" : "nothing");
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string kind = entry.path().extension();
    if (kind == ".bin" || kind == ".pth" || kind == ".pt") {
      fail(Fault::file,
           "{}: expected {}, found the pickle {}, which could run any code and is not read; "
           "convert the model to safetensors",
           dir.string(), kWhole, entry.path().filename().string());
    }
  }
  fail(Fault::file, "{}: expected {} or {}, found neither", dir.string(), kWhole, kIndex);
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

// A shard's name comes from a stranger: it must not lead out of the folder.
bool is_plain_name(const std::string& name) {
  return name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
         name.find("..") == std::string::npos && name.ends_with(".safetensors");
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& dir) : dir_(dir) {
  std::error_code error;
  if (fs::exists(dir / kWhole, error))
    add_file(dir / kWhole);
  else if (fs::exists(dir / kIndex, error))
    open_shards(dir / kIndex);
  else
    fail_without_weights(dir);
}

const SafetensorsFile& ModelFolder::add_file(const fs::path& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  for (const StoredTensor& t : file.header().tensors) tensors_.emplace(t.name, Entry{&file, &t});
  return file;
}

void ModelFolder::open_shards(const fs::path& index) {
  const std::string text = read_text(index), where = index.string();
  const json root = parse_json(text, where);
  require(root.is_object(), Fault::file, "{}: expected an object, found {}",
          text_location(text, where, 0), shown(root));
  std::map<std::string, const SafetensorsFile*> shards;
  int64_t total = 0;
  for (const auto& [name, value] : object_in(root, "weight_map", text, where).items()) {
    // The binding by a name of its own: C++20 lets lambdas capture bindings, Clang 14 does not.
    const auto refuse = [&, &name = name](const std::string& what) {
      fail(Fault::file, "{}: {}: {}", json_location(text, where, {"weight_map", name}),
           in_quotes(name), what);
    };
    if (!value.is_string() || !is_plain_name(value.get_ref<const std::string&>()))
      refuse("expected the name of a .safetensors file in this folder, found " + shown(value));
    const auto& shard = value.get_ref<const std::string&>();
    std::error_code error;
    if (!shards.contains(shard)) {
      if (!fs::exists(dir_ / shard, error))
        refuse(fmt::format("expected the file {}, found none; download it", in_quotes(shard)));
      shards[shard] = &add_file(dir_ / shard);
    }
    const StoredTensor* tensor = shards[shard]->header().find(name);
    if (tensor == nullptr)
      refuse("expected it in " + in_quotes(shard) + ", which has no such tensor");
    tensors_[name] = {shards[shard], tensor};
    total += tensor->nbytes();
  }
  // Not an error: writers differ in whether shared tensors count twice.
  const auto metadata = root.find("metadata");
  if (metadata == root.end() || !metadata->is_object()) return;
  const auto size = metadata->find("total_size");
  if (size != metadata->end() && size->is_number() &&
      size->get<double>() != static_cast<double>(total))
    log::warn("{}: total_size says {} bytes, the tensors have {}", where, shown(*size), total);
}

}  // namespace capstan
