#include "infer/model_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "data/prompt/prompt_style.h"
#include "model/known_models.h"
#include "recipe/recipe_input.h"

namespace capstan {

namespace fs = std::filesystem;

namespace {

// Reads the quantization from the recipe saved with the adapter, if there is one.
std::optional<Quantize> base_quantization(const fs::path& adapter) {
  const fs::path path = adapter / "hyperparameters.yaml";
  if (!fs::exists(path)) return std::nullopt;
  try {
    RecipeInput recipe(Task::finetune_lora, defaults_of(Task::finetune_lora));
    recipe.read_file(path);
    return recipe.finish().quantize.value_or(Quantize::none);
  } catch (const Error& e) {
    fail(Fault::file,
         "{}\n{} should say how the adapter's base was quantized; if it does not belong to the "
         "adapter's training, remove it",
         e.what(), path.string());
  }
}

// For a name that a model on the Hub may have.
std::string how_to_get(std::string name) {
  if (name.starts_with("checkpoints/")) name = name.substr(12);
  while (name.ends_with('/')) name.pop_back();
  for (const KnownRepository& known : known_repositories())
    if (name == known.repository || name == known.model)
      return fmt::format(". To get this one: capstan download {}", known.repository);
  const bool like_one = name.find('/') != std::string::npos && name.find('/') == name.rfind('/') &&
                        name.front() != '.' && name.front() != '/' && !name.starts_with("out/");
  return like_one ? fmt::format(". If it is a model on the Hugging Face Hub: capstan download {}",
                                in_shell(name))
                  : "";
}

}  // namespace

std::optional<fs::path> try_checkpoint_dir(const std::string& name) {
  std::error_code error;
  for (const fs::path& p : {fs::path(name), fs::path("checkpoints") / name})
    if (!name.empty() && fs::is_directory(p, error)) return p;
  return std::nullopt;
}

fs::path find_checkpoint_dir(const std::string& name) {
  const auto found = try_checkpoint_dir(name);
  require(found.has_value() || !name.ends_with(".yaml"), Fault::file,
          "{}: expected a checkpoint folder; pass a recipe with --config {}", name, name);
  const fs::path below = fs::path("checkpoints") / name;
  const bool looked_below = below != fs::path(name) && !name.starts_with("checkpoints/");
  require(found.has_value(), Fault::file,
          "{}: no such folder{}; give a checkpoint folder, with config.json, model.safetensors and "
          "the tokenizer's files{}",
          name, looked_below ? fmt::format(", nor {}", below.string()) : "", how_to_get(name));
  const bool is_run = !fs::exists(*found / "config.json") && fs::is_directory(*found / "final");
  require(!is_run, Fault::file, "{}: is the folder of a run; its model is {}", found->string(),
          (*found / "final").string());
  return *found;
}

void verify_if_ours(const fs::path& folder) {
  if (!fs::exists(folder / kManifest)) return;
  try {
    verify_checkpoint(folder);
  } catch (const Error& e) {
    fail(e.fault(), "{}. If it was changed on purpose, remove {}", e.what(),
         (folder / kManifest).string());
  }
}

fs::path ModelFiles::tokenizer() const {
  for (const char* file : {"tokenizer.json", "tokenizer.model"})
    if (fs::exists(folder / file)) return folder;
  return base;
}

fs::path ModelFiles::prompting() const {
  return !adapter || read_prompt_style(folder) || chat_template_of(folder) ? folder : base;
}

std::optional<ChatTemplate> ModelFiles::chat_template() const {
  for (const fs::path& from : {prompting(), tokenizer(), base})
    if (auto found = chat_template_of(from)) return found;
  return std::nullopt;
}

ModelFiles find_model(const std::string& name, const std::string& base,
                      const std::string& quantize) {
  ModelFiles files;
  if (!quantize.empty()) files.quantize = parse_named<Quantize>("quantize", quantize);
  files.folder = files.base = find_checkpoint_dir(name);
  if (is_adapter(files.folder)) {
    files.adapter = read_adapter_config(files.folder);
    const std::string wanted = base.empty() ? files.adapter->base : base;
    require(!wanted.empty(), Fault::file,
            "{}: does not name its base model; give its folder with --base_model FOLDER",
            (files.folder / kAdapterConfigFile).string());
    auto found = try_checkpoint_dir(wanted);
    if (!found) found = try_checkpoint_dir((files.folder / wanted).string());
    require(found.has_value(), Fault::file,
            "{}: is an adapter of '{}', which is not there, nor under checkpoints/; give its "
            "folder with --base_model FOLDER",
            files.folder.string(), wanted);
    files.base = *found;
    files.base_quantization = base_quantization(files.folder);
    if (quantize.empty()) files.quantize = files.base_quantization.value_or(Quantize::none);
  } else {
    require(base.empty(), Fault::usage, "--base_model: {} is a whole model and needs none",
            files.folder.string());
  }
  files.config = read_config(files.base);
  return files;
}

void tell_quantize(const ModelFiles& files) {
  if (!files.adapter) return;
  const auto now = name_of(files.quantize);
  if (files.base_quantization && *files.base_quantization != files.quantize)
    log::warn("the adapter was trained with the model in {}, but is used with it in {}",
              name_of(*files.base_quantization), now);
  else if (files.quantize != Quantize::none)
    log::info("the model is quantized to {}{}", now,
              files.base_quantization ? ", as in the adapter's training" : "");
}

void require_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                      const fs::path& tokenizer_dir) {
  require(tokenizer.vocab_size() <= model.vocab, Fault::file,
          "{}the tokenizer has {} tokens, but the model only has {}: they do not belong together",
          tokenizer_dir.empty() ? "" : tokenizer_dir.string() + ": ", tokenizer.vocab_size(),
          model.vocab);
}

}  // namespace capstan
