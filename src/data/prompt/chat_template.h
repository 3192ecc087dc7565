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

// How a conversation becomes what the model reads: the templates of the common families, as texts
// and not as programs. Tools, images and reasoning are not among them.
//
// The texts of turns hold {content}, and tokens such as <|eot_id|> by name. What is learned of an
// assistant's turn is its content and `assistant_end`.
struct ChatTemplate {
  std::string name;        // "llama3", "chatml", …
  std::string begin = {};  // before everything: the bos token, or nothing
  // A system turn. Where it is empty, the system text stands before the text of the first user (or
  // the last), with `system_in_user` around it.
  std::string system = {};
  std::string system_in_user = {};
  bool in_last_user = false;
  std::optional<std::string> default_system = {};  // where a conversation has none
  std::string user = {};
  std::string assistant_begin = {}, assistant_end = {}, assistant_after = {};
  std::string generation_prompt = {};  // follows the last user's turn, to be answered
  // Whose contents lose white space at both ends.
  bool trim_user = false, trim_assistant = false;
  std::vector<std::string> specials = {};

  bool operator==(const ChatTemplate&) const = default;
};

// With <s> and </s> where a family has no bos and eos tokens of its own.
std::span<const ChatTemplate> chat_templates();
// Null for a name that is not among them.
const ChatTemplate* find_chat_template(std::string_view name);

// The family that a Jinja template belongs to, by the tokens it writes, with the default system
// text that it holds; nothing for one that is unknown. `bos` and `eos` are the tokenizer's by name.
std::optional<ChatTemplate> detect_chat_template(std::string_view jinja, std::string_view bos,
                                                 std::string_view eos);
// Of a model's folder: chat_template.jinja, else "chat_template" in tokenizer_config.json (a text,
// or a list with one named "default"). Nothing where there is no template or an unknown one. Throws
// Fault::file where a file cannot be read or is not JSON.
std::optional<ChatTemplate> chat_template_of(const std::filesystem::path& folder);
// The text of that template, known or not; empty where there is none.
std::string chat_template_text(const std::filesystem::path& folder);

// The pieces of a whole conversation; with `add_generation_prompt`, what begins an answer follows.
// As text, it is what transformers' apply_chat_template makes, with the date that Llama 3.1 wrote
// where none was given (26 Jul 2024).
std::vector<Piece> render(const ChatTemplate& chat, std::span<const Message> messages,
                          bool add_generation_prompt);

// All that decides what render gives, in one text: a part of the key of cached tokens.
std::string fingerprint(const ChatTemplate& chat);

}  // namespace capstan
