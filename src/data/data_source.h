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

namespace capstan {

// For Alpaca, Dolly, …: where the set lies (locate), its fields, style and fraction. With a
// `json_path`, that is read instead. Throws as locate does, and Fault::usage for an unknown name.
DataOptions named_set_options(std::string_view name, const std::filesystem::path& json_path = {},
                              const std::filesystem::path& root = "data");

// One record as generation needs it.
struct ExamplePrompt {
  std::string instruction;      // what the user asked (the last of the user's turns)
  std::string prompt;           // as the model reads it
  std::vector<int32_t> tokens;  // of the prompt, with bos where samples have it
  std::string expected;         // the answer in the data
};

class PromptSource;  // what ExamplePrompts are made from

struct LoadedData {
  Dataset train, validation;
  LintReport lint;  // of both
  bool from_cache = false;
  double seconds = 0;
  // What the first record that is no document was rendered with: one of the two, or neither.
  const PromptStyle* style = nullptr;
  std::optional<ChatTemplate> chat_template;
  double validation_fraction = 0;  // that was used; 0 with separate data
  bool default_fraction = false;   // nobody asked for it: worth a word
  // What was decided without being asked, for people: files of a folder that were passed over, a
  // prompt style for conversations.
  std::vector<std::string> notes;

  // The record behind sample `index` of train or validation. Text files have none (Fault::bug).
  ExamplePrompt example(const Dataset& part, int64_t index, const Tokenizer& tokenizer) const;

  std::shared_ptr<const PromptSource> prompts;
};

// Called now and then while records (or text files) are tokenized, from the calling thread.
using DataProgress = std::function<void(int64_t done, int64_t total)>;

// Reads, renders and tokenizes; or reads what an earlier run has tokenized. Deterministic, whatever
// the number of threads. Throws Fault::file for everything that is wrong with the data (all bad
// records of a file together, ten shown) and Fault::usage for what is wrong with the options: an
// unknown style, a fraction given with separate validation data, a max_seq_length too small.
LoadedData load_data(const DataOptions& options, const Tokenizer& tokenizer,
                     const DataProgress& progress = {});

// How to prompt a model when nobody says: its prompt_style.yaml, else its chat template, else the
// style that LitGPT has for the model's name, else as the text is. One of the two is set.
struct ModelPrompting {
  const PromptStyle* style = nullptr;
  std::optional<ChatTemplate> chat_template;
};
ModelPrompting prompting_of(const std::filesystem::path& folder, std::string_view model_name);
// The prompt for one instruction, as the model reads it.
std::vector<Piece> prompt_pieces(const ModelPrompting& prompting, std::string_view instruction);

}  // namespace capstan
