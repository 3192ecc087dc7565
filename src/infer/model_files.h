#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/adapter.h"
#include "data/prompt/chat_template.h"
#include "model/config.h"

namespace capstan {

// The folder as given, else under checkpoints/ (as LitGPT has it), or nothing.
std::optional<std::filesystem::path> try_checkpoint_dir(const std::string& name);
// The same; throws Fault::file, telling both places, where there is none.
std::filesystem::path find_checkpoint_dir(const std::string& name);

// A model to use: a folder with all weights, or an adapter and the folder that it was trained
// beside.
struct ModelFiles {
  std::filesystem::path folder;  // what was asked for
  std::filesystem::path base;    // where config.json and the weights are; the folder itself if full
  ModelConfig config;
  std::optional<AdapterConfig> adapter;
  std::optional<Quantize> trained_beside;  // how the adapter's training held the base, if known
  Quantize quantize = Quantize::none;      // how the base is to be held

  // The folder with the tokenizer: the adapter's own, else the base's.
  std::filesystem::path tokenizer() const;
  // The folder that says how the model is asked: the adapter's own, where it has a prompt style or
  // a template that is known, else the base's.
  std::filesystem::path prompting() const;
  // The model's own template, where one is known: of that folder, else the tokenizer's, else the
  // base's.
  std::optional<ChatTemplate> chat_template() const;
};

// Throws Fault::file where there is no such folder, or an adapter's base is neither at its path,
// nor under checkpoints/, nor beside the adapter; --base_model names it then, as `base` does here.
//
// `quantize` is one of the recipe's kinds, or "none". Without it an adapter's base is held as it
// was in training, which the hyperparameters.yaml beside the adapter tells (PEFT writes none: not
// quantized), and a whole model as it is stored. Throws Fault::usage for another word.
ModelFiles find_model(const std::string& name, const std::string& base = {},
                      const std::string& quantize = {});

// One line on the terminal where an adapter's base is quantized, and a warning where it is known to
// be held in another way than in training.
void tell_quantize(const ModelFiles& files);

// Checks a folder that Capstan wrote against its MANIFEST.json. Throws Fault::file, naming the file
// that is damaged or was changed; says nothing of folders that others wrote.
void verify_if_ours(const std::filesystem::path& folder);

}  // namespace capstan
