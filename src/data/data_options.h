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

}  // namespace capstan
