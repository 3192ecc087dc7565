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

// Writes text of a model or its user to stdout and flushes. On a terminal, control characters other
// than newline and tab are shown as escapes; a file or pipe gets them unchanged.
void put_text(std::string_view text);

// A checkpoint folder to talk to: model, tokenizer, and prompt format.
class TextModel {
 public:
  // Reads everything but the weights. `style` names a prompt style or chat template; empty: the
  // folder's.
  TextModel(ModelFiles files, const std::string& style);

  const ModelConfig& config() const { return files_.config; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Prompts are continued without a template.
  bool is_plain() const;
  bool has_chat_template() const { return prompting_.chat_template.has_value(); }

  // One question as the model reads it, with bos if the model's texts begin with it.
  std::vector<int32_t> prompt_tokens(std::string_view instruction) const;
  // A conversation that ends before the assistant's next answer; needs a chat template.
  std::vector<int32_t> chat_tokens(std::span<const Message> messages) const;
  // Sets the tokens and texts that end an answer.
  void set_stops(GenerateOptions& options) const;

  // Loads the weights to the device, with a KV cache for `positions` tokens.
  void load(Device device, const PrecisionWords& precision, int64_t positions);
  int64_t capacity() { return loaded_->model().decoder().capacity(); }
  // Generates, and prints the text as a continuation of the prompt while tokens arrive.
  std::vector<int32_t> stream(std::span<const int32_t> prompt, const GenerateOptions& options);

 private:
  std::vector<int32_t> with_bos(std::vector<int32_t> tokens) const;

  ModelFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ModelPrompting prompting_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace capstan::cli
