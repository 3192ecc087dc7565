#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/prompt/chat_template.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kBos = "<s>", kEos = "</s>";

ChatTemplate llama3() {
  const std::string header = "<|start_header_id|>", end = "<|end_header_id|>\n\n";
  const std::string answer = header + "assistant" + end;
  return {
      .name = "llama3",
      .begin = "<|begin_of_text|>",
      .system = header + "system" + end + "{content}<|eot_id|>",
      .user = header + "user" + end + "{content}<|eot_id|>",
      .assistant_begin = answer,
      .assistant_end = "<|eot_id|>",
      .generation_prompt = answer,
      .trim_user = true,
      .trim_assistant = true,
      .specials = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}};
}

// Llama 3.1 and later: there is always a system turn, which begins with dates.
ChatTemplate llama31() {
  ChatTemplate t = llama3();
  t.name = "llama3.1";
  t.system =
      "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n{content}<|eot_id|>";
  t.default_system = "";
  return t;
}

ChatTemplate chat_ml() {
  return {.name = "chatml",
          .system = "<|im_start|>system\n{content}<|im_end|>\n",
          .user = "<|im_start|>user\n{content}<|im_end|>\n",
          .assistant_begin = "<|im_start|>assistant\n",
          .assistant_end = "<|im_end|>",
          .assistant_after = "\n",
          .generation_prompt = "<|im_start|>assistant\n",
          .specials = {"<|im_start|>", "<|im_end|>"}};
}

std::vector<ChatTemplate> make_templates() {
  return {
      llama3(),
      llama31(),
      chat_ml(),
      {.name = "llama2",
       .system_in_user = "<<SYS>>\n{content}\n<</SYS>>\n\n",
       .user = "<s>[INST] {content} [/INST]",
       .assistant_begin = " ",
       .assistant_end = " </s>",
       .trim_user = true,
       .trim_assistant = true,
       .specials = {"<s>", "</s>"}},
      {.name = "mistral",
       .begin = "<s>",
       .system_in_user = "{content}\n\n",
       .user = "[INST] {content} [/INST]",
       .assistant_end = "</s>",
       .specials = {"<s>", "</s>", "[INST]", "[/INST]"}},
      // From Mistral-7B-Instruct-v0.3 on.
      {.name = "mistral-v3",
       .begin = "<s>",
       .system_in_user = "{content}\n\n",
       .in_last_user = true,
       .user = "[INST] {content}[/INST]",
       .assistant_begin = " ",
       .assistant_end = "</s>",
       .trim_assistant = true,
       .specials = {"<s>", "</s>", "[INST]", "[/INST]"}},
      // Also used by TinyLlama's chat models.
      {.name = "zephyr",
       .system = "<|system|>\n{content}</s>\n",
       .user = "<|user|>\n{content}</s>\n",
       .assistant_begin = "<|assistant|>\n",
       .assistant_end = "</s>",
       .assistant_after = "\n",
       .generation_prompt = "<|assistant|>\n",
       .specials = {"</s>", "<|system|>", "<|user|>", "<|assistant|>"}},
      {.name = "gemma",
       .begin = "<bos>",
       .system_in_user = "{content}\n\n",
       .user = "<start_of_turn>user\n{content}<end_of_turn>\n",
       .assistant_begin = "<start_of_turn>model\n",
       .assistant_end = "<end_of_turn>",
       .assistant_after = "\n",
       .generation_prompt = "<start_of_turn>model\n",
       .trim_user = true,
       .trim_assistant = true,
       .specials = {"<bos>", "<start_of_turn>", "<end_of_turn>"}},
  };
}

std::string_view family_of(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  if (has("<|start_header_id|>")) return has("Cutting Knowledge Date") ? "llama3.1" : "llama3";
  if (has("<|im_start|>") && !has("<|im_sep|>")) return "chatml";
  if (has("<start_of_turn>")) return "gemma";
  if (has("[INST]") && has("<<SYS>>")) return "llama2";
  if (has("[INST]")) return has("[AVAILABLE_TOOLS]") ? "mistral-v3" : "mistral";
  if (has("<|user|>") && has("<|assistant|>") && has("eos_token")) return "zephyr";
  return "";
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void rename_token(ChatTemplate& t, std::string_view from, std::string_view to) {
  if (to.empty() || from == to) return;
  for (std::string* text : {&t.begin, &t.system, &t.system_in_user, &t.user, &t.assistant_begin,
                            &t.assistant_end, &t.assistant_after, &t.generation_prompt})
    replace_all(*text, from, to);
  std::replace(t.specials.begin(), t.specials.end(), std::string(from), std::string(to));
}

// The text between '<|im_start|>system\n and <|im_end|> in one string of the template.
std::optional<std::string> chat_ml_system(std::string_view jinja) {
  constexpr std::string_view kBegin = "<|im_start|>system\\n", kEnd = "<|im_end|>";
  for (size_t at = jinja.find(kBegin); at != jinja.npos; at = jinja.find(kBegin, at + 1)) {
    const std::string_view rest = jinja.substr(at + kBegin.size());
    std::string text(rest.substr(0, rest.find(kEnd)));
    if (text.size() == rest.size() || text.empty()) continue;
    if (text.find_first_of("'\"{}") != text.npos) continue;  // the string ends before
    replace_all(text, "\\n", "\n");
    return text;
  }
  return std::nullopt;
}

// A token in tokenizer_config.json: its text, or an object with the text as content.
std::string token_name(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object()) return token_name(*found, "content");
  return "";
}

json tokenizer_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  std::error_code error;
  if (!fs::exists(path, error)) return json::object();
  json config = parse_json(read_text(path), path.string());
  require(config.is_object(), Fault::file, "{}: expected an object, found {}", path.string(),
          shown(config));
  return config;
}

std::string template_text(const fs::path& folder, const json& config) {
  const fs::path own = folder / "chat_template.jinja";
  std::error_code error;
  if (fs::exists(own, error)) return read_text(own);
  const auto found = config.find("chat_template");
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const json& entry : *found)
    if (entry.is_object() && token_name(entry, "name") == "default")
      return token_name(entry, "template");
  return "";
}

}  // namespace

std::span<const ChatTemplate> chat_templates() {
  static const std::vector<ChatTemplate> templates = make_templates();
  return templates;
}

const ChatTemplate* find_chat_template(std::string_view name) {
  for (const ChatTemplate& t : chat_templates())
    if (t.name == name) return &t;
  return nullptr;
}

std::optional<ChatTemplate> detect_chat_template(std::string_view jinja, std::string_view bos,
                                                 std::string_view eos) {
  const ChatTemplate* family = find_chat_template(family_of(jinja));
  if (family == nullptr) return std::nullopt;
  ChatTemplate t = *family;
  if (t.name == "chatml") {
    t.default_system = chat_ml_system(jinja);
    if (jinja.find("bos_token") != jinja.npos && !bos.empty()) {
      t.begin = bos;
      t.specials.emplace_back(bos);
    }
  }
  rename_token(t, kBos, bos);
  rename_token(t, kEos, eos);
  return t;
}

std::optional<ChatTemplate> chat_template_of(const fs::path& folder) {
  const json config = tokenizer_config(folder);
  return detect_chat_template(template_text(folder, config), token_name(config, "bos_token"),
                              token_name(config, "eos_token"));
}

std::string chat_template_text(const fs::path& folder) {
  return template_text(folder, tokenizer_config(folder));
}

}  // namespace capstan
