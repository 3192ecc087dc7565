#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/prompt/rendering.h"
#include "data/records/record.h"

namespace capstan {

// How a conversation becomes model input: the templates of the common families, as data and not as
// Jinja programs. Without tools, images and reasoning.
//
// The turns contain {content}, and tokens such as <|eot_id|> by name. Of an assistant turn, the
// content and `assistant_end` are targets.
struct ChatTemplate {
  std::string name;        // "llama3", "chatml", …
  std::string begin = {};  // at the very start: the bos token, or nothing
  // A system turn. If it is empty, the system message precedes the text of the first (or last) user
  // turn, wrapped in `system_in_user`.
  std::string system = {};
  std::string system_in_user = {};
  bool in_last_user = false;
  std::optional<std::string> default_system = {};  // if a conversation has none
  std::string user = {};
  std::string assistant_begin = {}, assistant_end = {}, assistant_after = {};
  std::string generation_prompt = {};  // follows the last user turn, before the answer
  // Roles whose contents are stripped of white space.
  bool trim_user = false, trim_assistant = false;
  std::vector<std::string> specials = {};

  bool operator==(const ChatTemplate&) const = default;
};

// With <s> and </s> if a family has no bos and eos tokens of its own.
std::span<const ChatTemplate> chat_templates();
// Null for an unknown name.
const ChatTemplate* find_chat_template(std::string_view name);

// The family of a Jinja template, recognized by its tokens, with the template's default system
// message; nothing if unknown. `bos` and `eos` are the tokenizer's token names.
std::optional<ChatTemplate> detect_chat_template(std::string_view jinja, std::string_view bos,
                                                 std::string_view eos);
// From a model's folder: chat_template.jinja, else "chat_template" in tokenizer_config.json (a
// text, or a list with one named "default"). Nothing if there is no template or an unknown one.
// Throws Fault::file if a file is unreadable or not JSON.
std::optional<ChatTemplate> chat_template_of(const std::filesystem::path& folder);
// The text of that template, known or not; empty if there is none.
std::string chat_template_text(const std::filesystem::path& folder);

// The pieces of a whole conversation; with `add_generation_prompt`, followed by the start of an
// answer. As text, it equals transformers' apply_chat_template, with Llama 3.1's default date if
// none was given (26 Jul 2024).
std::vector<Piece> render(const ChatTemplate& chat, std::span<const Message> messages,
                          bool add_generation_prompt);

// Everything that determines the result of render, as one text: part of the token cache key.
std::string fingerprint(const ChatTemplate& chat);

}  // namespace capstan
