#include "data/tokenizer/tokenizer_folder.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxBytes = 512 << 20;

// Whether there is anything of that name but a folder. What is no regular file (a pipe, a broken
// link) is refused when it is read, instead of being taken for missing.
bool has_name(const fs::path& folder, const char* name) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder / name, error);
  return fs::exists(status) && !fs::is_directory(folder / name, error);
}

// One of the small files next to a tokenizer; a missing file has no keys.
class SideFile {
 public:
  SideFile(const fs::path& folder, const char* name) : where_((folder / name).string()) {
    if (!has_name(folder, name)) return;
    text_ = read_text(where_, kMaxBytes);
    value_ = parse_json(text_, where_);
    require(value_.is_object(), Fault::file, "{}:1:1: expected an object, found {}", where_,
            shown(value_));
  }

  bool exists() const { return value_.is_object(); }
  // Null if it is missing.
  json get(const char* key) const { return exists() ? value_.value(key, json()) : json(); }
  std::string location(const char* key) const { return json_location(text_, where_, {key}); }

  // The id of a token given as "</s>" or {"content": "</s>"}.
  std::optional<int32_t> named_token(const char* key, const Tokenizer& tokenizer) const {
    json name = get(key);
    if (name.is_object()) name = name.value("content", json());
    if (name.is_null()) return std::nullopt;
    require(name.is_string(), Fault::file, "{}: {}: expected a token's text, found {}",
            location(key), key, shown(name));
    const auto id = tokenizer.id_of(name.get_ref<const std::string&>());
    require(id.has_value(), Fault::file, "{}: {}: the tokenizer has no token {}", location(key),
            key, shown(name));
    return id;
  }

  // An id, or the first of a list of ids.
  std::optional<int32_t> id(const char* key, const Tokenizer& tokenizer) const {
    json id = get(key);
    if (id.is_array() && !id.empty()) id = json(id[0]);
    if (id.is_null()) return std::nullopt;
    require(id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size(), Fault::file,
            "{}: {}: expected an id from 0 to {}, found {}", location(key), key,
            tokenizer.vocab_size() - 1, shown(id));
    return id.get<int32_t>();
  }

 private:
  std::string where_, text_;
  json value_;
};

// bos or eos from the files next to the tokenizer. Reads a file only if needed, so a damaged file
// that decides nothing does no harm.
std::optional<int32_t> special_id(const fs::path& folder, const std::string& name,
                                  const Tokenizer& tokenizer) {
  const std::string token = name + "_token", number = name + "_token_id";
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"})
    if (const auto id = SideFile(folder, file).named_token(token.c_str(), tokenizer)) return id;
  for (const char* file : {"generation_config.json", "config.json"})
    if (const auto id = SideFile(folder, file).id(number.c_str(), tokenizer)) return id;
  return std::nullopt;
}

bool name_says_bos(const fs::path& folder) {
  const std::string name = folder_name(folder);
  return name.starts_with("Meta-Llama-3") || name.starts_with("Llama-3") ||
         (name.starts_with("SmolLM2") && name.ends_with("Instruct"));
}

bool uses_bos(const fs::path& folder, const fs::path& beside,
              const std::optional<std::string>& template_start) {
  const SideFile config(folder, "tokenizer_config.json");
  if (!config.exists()) return !beside.empty() && uses_bos(beside, {}, template_start);
  if (name_says_bos(folder)) return true;
  if (const json add = config.get("add_bos_token"); !add.is_null()) {
    require(add.is_boolean(), Fault::file, "{}: add_bos_token: expected true or false, found {}",
            config.location("add_bos_token"), shown(add));
    return add.get<bool>();
  }
  if (config.get("tokenizer_class") == "LlamaTokenizer") return true;
  json bos = config.get("bos_token");
  if (bos.is_object()) bos = bos.value("content", json());
  return template_start && bos == *template_start;
}

std::unique_ptr<Tokenizer> with_ends(std::unique_ptr<FileTokenizer> tokenizer,
                                     const fs::path& folder, const fs::path& beside, bool use_bos,
                                     std::optional<int32_t> bos, std::optional<int32_t> eos) {
  for (const fs::path& names : {folder, beside}) {
    if (names.empty()) continue;
    if (!eos) eos = special_id(names, "eos", *tokenizer);
    if (use_bos && !bos) bos = special_id(names, "bos", *tokenizer);
  }
  require(eos.has_value(), Fault::file,
          "{}: no file names the eos token; set \"eos_token\" in tokenizer_config.json",
          folder.string());
  require(!use_bos || bos.has_value(), Fault::file,
          "{}: texts begin with a bos token, but no file names it; set \"bos_token\" in "
          "tokenizer_config.json, or \"add_bos_token\" to false",
          folder.string());
  tokenizer->set_ends(use_bos ? bos : std::nullopt, *eos);
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_json(const fs::path& folder, const fs::path& beside) {
  const std::string where = (folder / "tokenizer.json").string();
  const std::string text = read_text(where, kMaxBytes);
  const json file = parse_json(text, where);
  if (is_byte_tokenizer(file)) return std::make_unique<ByteTokenizer>();
  auto tokenizer = std::make_unique<JsonTokenizer>(file, text, where);
  const bool use_bos = uses_bos(folder, beside, tokenizer->template_start());
  return with_ends(std::move(tokenizer), folder, beside, use_bos, {}, {});
}

std::unique_ptr<Tokenizer> load_model(const fs::path& folder, const fs::path& beside) {
  const fs::path path = folder / "tokenizer.model";
  const std::string file = read_text(path, kMaxBytes);
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(file, path.string());
  const auto bos = tokenizer->bos_in_file(), eos = tokenizer->eos_in_file();
  return with_ends(std::move(tokenizer), folder, beside, uses_bos(folder, beside, {}), bos, eos);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& folder, const fs::path& beside) {
  require(fs::is_directory(folder), Fault::file,
          "{}: expected a folder with a tokenizer.json or tokenizer.model; there is no such folder",
          folder.string());
  if (has_name(folder, "tokenizer.json")) return load_json(folder, beside);
  if (has_name(folder, "tokenizer.model")) return load_model(folder, beside);
  fail(Fault::file, "{}: the folder has neither a tokenizer.json nor a tokenizer.model",
       folder.string());
}

std::string config_with_bos(const fs::path& folder) {
  const fs::path path = folder / kTokenizerConfig;
  if (!name_says_bos(folder) || !fs::is_regular_file(path)) return "";
  auto config = parse_ordered_json(read_text(path, kMaxBytes), path.string());
  if (!config.is_object()) return "";
  config["add_bos_token"] = true;
  return config.dump(2) + "\n";
}

std::vector<fs::path> tokenizer_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt"})
    if (fs::is_regular_file(folder / name)) files.push_back(folder / name);
  return files;
}

}  // namespace capstan
