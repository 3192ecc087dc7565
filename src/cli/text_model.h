#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "data/data_source.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/inference.h"

namespace capstan::cli {

// --quantize, for find_model.
void add_quantize(CommandLine& line, std::string& quantize);

// Text of a model or its user to stdout, at once. On a terminal control characters but newline and
// tab are shown as escapes; a file or a pipe gets them as they are.
void put_text(std::string_view text);

// A checkpoint folder to talk to: model, tokenizer, and how the model expects to be asked.
class TextModel {
 public:
  // Reads everything but the weights. `style` names a prompt style or chat template; empty: what
  // the folder says.
  TextModel(ModelFiles files, const std::string& style);

  const ModelConfig& config() const { return files_.config; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Prompts are continued as they are.
  bool is_plain() const;
  bool has_chat_template() const { return prompting_.chat_template.has_value(); }

  // One question as the model reads it, with bos where the model's texts begin with it.
  std::vector<int32_t> prompt_tokens(std::string_view instruction) const;
  // A conversation that waits for an answer; needs a chat template.
  std::vector<int32_t> chat_tokens(std::span<const Message> messages) const;
  // What ends an answer.
  void set_stops(GenerateOptions& options) const;

  // Loads the weights to the device, with room for texts of so many tokens.
  void load(Device device, const std::string& precision, int64_t positions);
  int64_t capacity() { return loaded_->model().decoder().capacity(); }
  // Generates, and prints the text as it comes, as the continuation of the prompt's.
  std::vector<int32_t> stream(std::span<const int32_t> prompt, const GenerateOptions& options);

 private:
  std::vector<int32_t> with_bos(std::vector<int32_t> tokens) const;

  ModelFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ModelPrompting prompting_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace capstan::cli
