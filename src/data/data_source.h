#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat_template.h"
#include "data/dataset.h"
#include "data/lint.h"
#include "data/prompt_style.h"
#include "data/records.h"
#include "data/tokenizer.h"

namespace capstan {

// DataOptions::style for the chat template of the model; with ":NAME" after it, for one of
// chat_templates().
inline constexpr std::string_view kChatTemplateStyle = "chat_template";

// What a run reads, and how text becomes samples.
struct DataOptions {
  enum class Kind {
    text_files,  // .txt, or {"text": …} as .jsonl; a file or a folder: every token is learned
    records,     // instructions, conversations or texts, as JSON, JSONL or CSV; or a folder with
                 // train and val
  };
  Kind kind = Kind::records;
  std::filesystem::path path;
  std::filesystem::path validation_path;  // separate data for validation
  // Further text to train on, after that of `path`. Text alone.
  std::vector<std::filesystem::path> more_paths;

  // A name of prompt_styles(), or kChatTemplateStyle. Empty: "alpaca" for instructions, as in
  // LitGPT, and the model's chat template for conversations.
  std::string style;
  std::optional<ChatTemplate> chat_template;  // of the model: chat_template_of(folder)
  // Prompt styles: learn the response alone. With a chat template the answers are learned, always.
  bool mask_prompt = false;
  RecordFields fields;
  // A prompt style takes one turn. Of longer conversations take the first; else they are an error.
  bool first_turn = false;

  // Samples held out where there are no separate data. Not set: 0.05 of records, as in LitGPT, and
  // none of text files.
  std::optional<double> validation_fraction;
  uint64_t seed = 42;          // of the split
  int64_t max_seq_length = 0;  // 0: no limit (text files need one)

  bool cache = true;
  std::filesystem::path cache_folder;  // empty: token_cache_folder()
};

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
