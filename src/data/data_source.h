#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/data_options.h"
#include "data/dataset/dataset.h"
#include "data/lint.h"
#include "data/prompt/prompt_style.h"
#include "data/tokenizer/tokenizer.h"
#include "recipe/choices.h"

namespace capstan {

// For Alpaca, Dolly, …: sets the files (locate), fields, style and fraction. A `json_path` takes
// precedence. Throws as locate does.
DataOptions named_set_options(DataClass name, const std::filesystem::path& json_path = {},
                              const std::filesystem::path& root = "data");

// One record as generation needs it.
struct ExamplePrompt {
  std::string instruction;      // what the user asked (the last user turn)
  std::string prompt;           // as the model reads it
  std::vector<int32_t> tokens;  // prompt tokens, with bos if samples have it
  std::string expected;         // the answer in the data
};

class PromptSource;  // the source of ExamplePrompts

struct LoadedData {
  Dataset train, validation;
  LintReport lint;  // of training and validation data
  bool from_cache = false;
  double seconds = 0;
  // How the first record that is not a document was rendered: one of the two, or neither.
  const PromptStyle* style = nullptr;
  std::optional<ChatTemplate> chat_template;
  double validation_fraction = 0;  // the fraction held out; 0 with separate data
  bool default_fraction = false;   // it is the default: worth mentioning
  // Decisions made for the user, to be printed: skipped files of a folder, a prompt style for
  // conversations.
  std::vector<std::string> notes;

  // The record of sample `index` of train or validation. Text files have none (Fault::bug).
  ExamplePrompt example(const Dataset& part, int64_t index, const Tokenizer& tokenizer) const;

  std::shared_ptr<const PromptSource> prompts;
};

// Called from the calling thread from time to time while data is tokenized.
using DataProgress = std::function<void(int64_t done, int64_t total)>;

// Reads, renders and tokenizes the data, or reads the token cache. Deterministic for any number of
// threads. Throws Fault::file for problems of the data (all bad records of a file together, ten
// shown) and Fault::usage for problems of the options: an unknown style, a fraction given with
// separate validation data, a max_seq_length too small.
LoadedData load_data(const DataOptions& options, const Tokenizer& tokenizer,
                     const DataProgress& progress = {});

// The default prompting of a model: its prompt_style.yaml, else its chat template, else LitGPT's
// style for the model's name, else plain text. One of the two is set.
struct ModelPrompting {
  const PromptStyle* style = nullptr;
  std::optional<ChatTemplate> chat_template;
};
ModelPrompting prompting_of(const std::filesystem::path& folder, std::string_view model_name);
// The prompt for one instruction, as the model reads it.
std::vector<Piece> prompt_pieces(const ModelPrompting& prompting, std::string_view instruction);

}  // namespace capstan
