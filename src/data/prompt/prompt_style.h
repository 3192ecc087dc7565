#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/prompt/rendering.h"

namespace capstan {

struct ChatTemplate;

// How an instruction becomes the prompt: LitGPT's styles and texts.
//
// `text` contains {instruction} and {system_part}; `with_input`, for records with an input, also
// {input}. If `with_input` is empty, the input follows the instruction after a blank line (LitGPT
// drops it). {system_part} becomes `system_part` with its {system} filled in, or nothing without a
// system message. Tokens such as <|eot_id|> are written by name.
struct PromptStyle {
  std::string_view name;        // "alpaca"
  std::string_view class_name;  // "Alpaca": litgpt.prompts.Alpaca in prompt_style.yaml
  std::string_view text, with_input = {};
  std::string_view system_part = {};
  std::string_view system = {};             // unless the record has its own
  std::string_view system_with_input = {};  // the same for `with_input`
  // Besides the tokenizer's eos: stop sequences, as token names separated by spaces.
  std::vector<std::string_view> stops = {};
};

std::span<const PromptStyle> prompt_styles();
// Throws Fault::usage for an unknown style, with the nearest name and the list of all.
const PromptStyle& prompt_style(std::string_view name);

// The pieces of the prompt, none of them targets. Tokens in the style's own text are special; the
// tokenizer decides about those in the instruction.
std::vector<Piece> render(const PromptStyle& style, std::string_view instruction,
                          std::string_view input = {}, std::string_view system = {});

// Sequences of ids that end an answer: eos, and the style's own if the tokenizer has all their
// tokens.
std::vector<std::vector<int32_t>> stop_sequences(const PromptStyle& style,
                                                 const Tokenizer& tokenizer);

// The text of prompt_style.yaml in a checkpoint: a style in LitGPT's form, "class_path:
// litgpt.prompts.Alpaca", a chat template by name, "chat_template: zephyr", or the model's own,
// "chat_template: own".
std::string prompt_style_yaml(const PromptStyle& style);
std::string prompt_style_yaml(const ChatTemplate& chat);
std::string own_template_yaml();
// Its parsed content: one of these, or nothing if there is no such file. Throws Fault::file as
// file:line:column: not YAML, none of the keys, an unknown class or name.
struct RecordedPrompting {
  const PromptStyle* style = nullptr;
  const ChatTemplate* chat_template = nullptr;
  bool own_template = false;
  explicit operator bool() const {
    return style != nullptr || chat_template != nullptr || own_template;
  }
};
RecordedPrompting read_prompt_style(const std::filesystem::path& folder);

// LitGPT's style for a model of this name ("Llama-3.2-1B-Instruct"), or its Default.
const PromptStyle& style_for_model_name(std::string_view model_name);

}  // namespace capstan
