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

// How an instruction becomes the text before the answer: LitGPT's styles, with its texts.
//
// `text` holds {instruction} and {system_part}; `with_input`, for records that have an input,
// {input} as well. Where `with_input` is empty, the input follows the instruction after a blank
// line (LitGPT drops it). {system_part} stands for `system_part` with its {system} filled in, or
// for nothing where there is no system text. Tokens such as <|eot_id|> stand in the texts by their
// names.
struct PromptStyle {
  std::string_view name;        // "alpaca"
  std::string_view class_name;  // "Alpaca": litgpt.prompts.Alpaca in prompt_style.yaml
  std::string_view text, with_input = {};
  std::string_view system_part = {};
  std::string_view system = {};             // unless the record has its own
  std::string_view system_with_input = {};  // the same for `with_input`
  // Besides the tokenizer's eos: sequences of tokens by name, with spaces between them, each of
  // which ends an answer.
  std::vector<std::string_view> stops = {};
};

std::span<const PromptStyle> prompt_styles();
// Throws Fault::usage: no such style, with the nearest and the list of all.
const PromptStyle& prompt_style(std::string_view name);

// The prompt's pieces, none learned. The tokens in the style's own text are special; what looks
// like one in the instruction is for the tokenizer to judge.
std::vector<Piece> render(const PromptStyle& style, std::string_view instruction,
                          std::string_view input = {}, std::string_view system = {});
// The same as text.
std::string prompt_text(const PromptStyle& style, std::string_view instruction,
                        std::string_view input = {}, std::string_view system = {});

// Sequences of ids that end an answer: eos, and the style's own where the tokenizer has all tokens
// of the sequence.
std::vector<std::vector<int32_t>> stop_sequences(const PromptStyle& style,
                                                 const Tokenizer& tokenizer);

// prompt_style.yaml beside a checkpoint, the text: a style in LitGPT's form, "class_path:
// litgpt.prompts.Alpaca", a chat template by its name, "chat_template: zephyr", or the model's own,
// "chat_template: own".
std::string prompt_style_yaml(const PromptStyle& style);
std::string prompt_style_yaml(const ChatTemplate& chat);
std::string own_template_yaml();
// What it says: one of these, or nothing where there is no such file. Throws Fault::file as
// file:line:column: not YAML, none of the keys, a class or a name that is not known.
struct RecordedPrompting {
  const PromptStyle* style = nullptr;
  const ChatTemplate* chat_template = nullptr;
  bool own_template = false;
  explicit operator bool() const {
    return style != nullptr || chat_template != nullptr || own_template;
  }
};
RecordedPrompting read_prompt_style(const std::filesystem::path& folder);

// The style that LitGPT takes for a model of this name ("Llama-3.2-1B-Instruct"), or its Default.
const PromptStyle& style_for_model_name(std::string_view model_name);

}  // namespace capstan
