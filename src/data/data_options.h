#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prompt/chat_template.h"
#include "data/records/record.h"

namespace capstan {

// Value of DataOptions::style for the model's own chat template; with ":NAME" appended, for one of
// chat_templates().
inline constexpr std::string_view kChatTemplateStyle = "chat_template";

// What a run reads, and how text becomes samples.
struct DataOptions {
  enum class Kind {
    text_files,  // .txt, or {"text": …} as .jsonl; a file or a folder; every token is a target
    records,     // instructions, conversations or texts, as JSON, JSONL or CSV; or a folder with
                 // train and val
  };
  Kind kind = Kind::records;
  std::filesystem::path path;
  std::filesystem::path validation_path;  // separate data for validation
  // More text to train on, after `path`. Text files only.
  std::vector<std::filesystem::path> more_paths;

  // A name of prompt_styles(), or kChatTemplateStyle. Empty: "alpaca" for instructions, as in
  // LitGPT, and the model's chat template for conversations.
  std::string style;
  std::optional<ChatTemplate> chat_template;  // the model's: chat_template_of(folder)
  // Prompt styles: only the response counts for the loss. With a chat template this is always so.
  bool mask_prompt = false;
  RecordFields fields;
  // A prompt style takes one turn. True: use the first turn of longer conversations; false: they
  // are an error.
  bool first_turn = false;

  // Fraction of samples held out if there is no separate validation data. Not set: 0.05 for
  // records, as in LitGPT, and none for text files.
  std::optional<double> validation_fraction;
  uint64_t seed = 42;          // seed of the split
  int64_t max_seq_length = 0;  // 0: no limit (text files need one)

  bool cache = true;
  std::filesystem::path cache_folder;  // empty: token_cache_folder()
};

}  // namespace capstan
