#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/adapter.h"
#include "data/prompt/chat_template.h"
#include "model/config.h"

namespace capstan {

// The folder as given, else under checkpoints/ (as in LitGPT), or nothing.
std::optional<std::filesystem::path> try_checkpoint_dir(const std::string& name);
// The same; throws Fault::file, naming both places, if there is none.
std::filesystem::path find_checkpoint_dir(const std::string& name);

// A model to use: a folder with all weights, or an adapter and its base model's folder.
struct ModelFiles {
  std::filesystem::path folder;  // the folder that the user gave
  std::filesystem::path
      base;  // has config.json and the weights; the folder itself for a whole model
  ModelConfig config;
  std::optional<AdapterConfig> adapter;
  std::optional<Quantize>
      base_quantization;  // quantization of the base in the adapter's training, if known
  Quantize quantize = Quantize::none;  // quantization to use for the base

  // The folder with the tokenizer: the adapter's own, else the base's.
  std::filesystem::path tokenizer() const;
  // The folder that determines the prompt format: the adapter's own if it has a prompt style or a
  // known template, else the base's.
  std::filesystem::path prompting() const;
  // The model's own template, if known: from that folder, else the tokenizer's, else the base's.
  std::optional<ChatTemplate> chat_template() const;
};

// Throws Fault::file if there is no such folder, or if an adapter's base is neither at its path,
// nor under checkpoints/, nor next to the adapter; the user then names it with --base_model (`base`
// here).
//
// `quantize` is one of the recipe's kinds, or "none". By default an adapter's base is quantized as
// in its training, according to the hyperparameters.yaml next to the adapter (PEFT writes none: not
// quantized), and a whole model is not quantized. Throws Fault::usage for another word.
ModelFiles find_model(const std::string& name, const std::string& base = {},
                      const std::string& quantize = {});

// Prints one line if an adapter's base is quantized, and a warning if that is known to differ from
// its training.
void tell_quantize(const ModelFiles& files);

// Verifies a folder that Capstan wrote against its MANIFEST.json. Throws Fault::file, naming the
// file that is damaged or was changed; ignores folders that others wrote.
void verify_if_ours(const std::filesystem::path& folder);

// Throws Fault::file unless the model has a row for every token: the two belong together.
// `tokenizer_dir` is where the tokenizer is; empty: not told.
void require_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                      const std::filesystem::path& tokenizer_dir = {});

}  // namespace capstan
