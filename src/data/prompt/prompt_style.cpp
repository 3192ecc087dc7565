#include "data/prompt/prompt_style.h"

#include <yaml-cpp/yaml.h>

#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/prompt/chat_template.h"
#include "recipe/nearest.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileName = "prompt_style.yaml";
constexpr std::string_view kModule = "litgpt.prompts.";
constexpr std::string_view kOwn = "own";  // not a template name

// The token names in styles.
constexpr std::array<std::string_view, 22> kSpecials = {
    "<|begin_of_text|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>",
    "<|im_start|>",      "<|im_end|>",
    "<|im_sep|>",        "<|endoftext|>",
    "<|system|>",        "<|user|>",
    "<|assistant|>",     "<|end|>",
    "<|SYSTEM|>",        "<|USER|>",
    "<|ASSISTANT|>",     "<start_of_turn>",
    "<end_of_turn>",     "<｜User｜>",
    "<｜Assistant｜>",   "[INST]",
    "[/INST]",           "</s>",
};

struct Value {
  std::string_view name;  // with braces
  std::string_view text;
};

// Appends the style's text with its placeholders filled in. One pass: inserted text is not scanned
// again, so an instruction may contain "{input}".
void fill(std::vector<Piece>& pieces, std::string_view text, std::span<const Value> values) {
  const auto plain = [&](std::string_view part) { add_pieces(pieces, part, kSpecials, false); };
  size_t done = 0;
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at)) {
    const Value* found = nullptr;
    for (const Value& v : values)
      if (text.substr(at).starts_with(v.name)) found = &v;
    if (found == nullptr) {
      ++at;
      continue;
    }
    plain(text.substr(done, at - done));
    if (!found->text.empty()) pieces.push_back({std::string(found->text)});
    done = at += found->name.size();
  }
  plain(text.substr(done));
}

std::string names_of_all() {
  std::string names;
  for (const PromptStyle& s : prompt_styles())
    names.append(names.empty() ? "" : ", ").append(s.name);
  return names;
}

const PromptStyle* style_of_class(std::string_view class_path) {
  if (!class_path.starts_with(kModule)) return nullptr;
  class_path.remove_prefix(kModule.size());
  for (const PromptStyle& s : prompt_styles())
    if (s.class_name == class_path) return &s;
  return nullptr;
}

}  // namespace

const PromptStyle& prompt_style(std::string_view name) {
  if (const PromptStyle* style = style_of_class(name)) return *style;
  std::vector<std::string_view> names;
  for (const PromptStyle& s : prompt_styles()) {
    if (s.name == name) return s;
    names.push_back(s.name);
  }
  fail(Fault::usage, "no prompt style {}{}. The known ones are: {}", in_quotes(name),
       did_you_mean(name, names), names_of_all());
}

std::vector<Piece> render(const PromptStyle& style, std::string_view instruction,
                          std::string_view input, std::string_view system) {
  const bool takes_input = !input.empty() && !style.with_input.empty();
  std::string joined(instruction);
  if (!input.empty() && !takes_input) joined.append(joined.empty() ? "" : "\n\n").append(input);
  if (system.empty()) system = takes_input ? style.system_with_input : style.system;

  // The style gives the text around the system message; the user gives the message.
  std::vector<Piece> pieces;
  const std::string_view text = takes_input ? style.with_input : style.text;
  constexpr std::string_view kSystemPart = "{system_part}";
  const std::array<Value, 2> values = {Value{"{instruction}", joined}, Value{"{input}", input}};
  const size_t at = text.find(kSystemPart);
  if (at == std::string_view::npos) {
    fill(pieces, text, values);
    return pieces;
  }
  fill(pieces, text.substr(0, at), values);
  const Value system_value{"{system}", system};
  if (!system.empty()) fill(pieces, style.system_part, {&system_value, 1});
  fill(pieces, text.substr(at + kSystemPart.size()), values);
  return pieces;
}

std::vector<std::vector<int32_t>> stop_sequences(const PromptStyle& style,
                                                 const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> all = {{tokenizer.eos()}};
  for (std::string_view names : style.stops) {
    std::vector<int32_t> ids;
    bool known = true;
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      const auto id = tokenizer.id_of(name);
      known = known && id;
      ids.push_back(id.value_or(-1));
    }
    if (known && ids != all.front()) all.push_back(std::move(ids));
  }
  return all;
}

std::string prompt_style_yaml(const PromptStyle& style) {
  return fmt::format("class_path: {}{}\n", kModule, style.class_name);
}

std::string prompt_style_yaml(const ChatTemplate& chat) {
  return fmt::format("chat_template: {}\n", chat.name);
}

std::string own_template_yaml() {
  return fmt::format("chat_template: {}\n", kOwn);
}

RecordedPrompting read_prompt_style(const fs::path& folder) {
  const fs::path path = folder / kFileName;
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const std::string name = path.string();
  std::string class_path, chat;
  YAML::Mark mark;
  try {
    const YAML::Node file = YAML::Load(read_text(path, 1 << 16));
    const auto take = [&](const char* key, std::string& to) {
      const YAML::Node found = file.IsMap() ? file[key] : YAML::Node();
      if (!found.IsDefined() || !found.IsScalar()) return;
      to = found.Scalar();
      mark = found.Mark();
    };
    take("class_path", class_path);
    if (class_path.empty()) take("chat_template", chat);
  } catch (const YAML::Exception& e) {
    fail(Fault::file, "{}:{}:{}: not valid YAML: {}", name, e.mark.line + 1, e.mark.column + 1,
         e.msg);
  }
  require(!class_path.empty() || !chat.empty(), Fault::file,
          "{}:1:1: expected \"class_path: {}Alpaca\" or another class", name, kModule);
  if (chat == kOwn) return {.own_template = true};
  const RecordedPrompting found =
      chat.empty() ? RecordedPrompting{.style = style_of_class(class_path)}
                   : RecordedPrompting{.chat_template = find_chat_template(chat)};
  require(chat.empty() || found, Fault::file, "{}:{}:{}: no chat template is named {}", name,
          mark.line + 1, mark.column + 1, in_quotes(chat));
  require(bool{found}, Fault::file,
          "{}:{}:{}: no prompt style has the class {}. Remove the file, or name one of LitGPT's "
          "classes: {}…",
          name, mark.line + 1, mark.column + 1, in_quotes(class_path), kModule);
  return found;
}

}  // namespace capstan
