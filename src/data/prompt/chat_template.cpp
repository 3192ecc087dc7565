#include "data/prompt/chat_template.h"

#include "base/error.h"

namespace capstan {
namespace {

std::string_view trimmed(std::string_view text, bool trim) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  if (!trim) return text;
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string filled(std::string_view text, std::string_view content) {
  constexpr std::string_view kContent = "{content}";
  const size_t at = text.find(kContent);
  if (at == std::string_view::npos) return std::string(text);
  return std::string(text.substr(0, at)).append(content).append(text.substr(at + kContent.size()));
}

class Renderer {
 public:
  explicit Renderer(const ChatTemplate& chat)
      : chat_(chat), specials_(chat.specials.begin(), chat.specials.end()) {}

  // The template's own text, in which token names are tokens.
  void own(std::string_view text, bool learn = false) {
    add_pieces(pieces_, text, specials_, learn);
  }
  void content(std::string_view text, bool learn) {
    if (!text.empty()) pieces_.push_back({std::string(text), false, learn});
  }
  void turn(std::string_view text, std::string_view inside) {
    constexpr std::string_view kContent = "{content}";
    const size_t at = text.find(kContent);
    own(text.substr(0, at));
    if (at == std::string_view::npos) return;
    content(inside, false);
    own(text.substr(at + kContent.size()));
  }
  void assistant(std::string_view inside) {
    own(chat_.assistant_begin);
    content(trimmed(inside, chat_.trim_assistant), true);
    own(chat_.assistant_end, true);
    own(chat_.assistant_after);
  }
  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  const ChatTemplate& chat_;
  std::vector<std::string_view> specials_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Piece> render(const ChatTemplate& chat, std::span<const Message> messages,
                          bool add_generation_prompt) {
  std::optional<std::string_view> system;
  if (chat.default_system) system = *chat.default_system;
  if (!messages.empty() && messages.front().role == Role::system) {
    system = messages.front().content;
    messages = messages.subspan(1);
  }
  size_t system_user = 0;  // the user turn that includes the system message
  if (chat.in_last_user)
    for (size_t i = 0; i < messages.size(); ++i)
      if (messages[i].role == Role::user) system_user = i;

  Renderer out(chat);
  out.own(chat.begin);
  const bool system_turn = !chat.system.empty();
  if (system && system_turn) out.turn(chat.system, trimmed(*system, chat.trim_user));
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    if (role == Role::assistant) {
      out.assistant(content);
    } else if (system && !system_turn && i == system_user) {
      const std::string both = filled(chat.system_in_user, *system) + content;
      out.turn(chat.user, trimmed(both, chat.trim_user));
    } else {
      out.turn(role == Role::system ? chat.system : chat.user, trimmed(content, chat.trim_user));
    }
  }
  if (add_generation_prompt) out.own(chat.generation_prompt);
  return out.take();
}

std::string fingerprint(const ChatTemplate& chat) {
  // The lengths distinguish "ab", "c" from "a", "bc".
  std::string all =
      fmt::format("chat {} {} {}", chat.in_last_user, chat.trim_user, chat.trim_assistant);
  const auto add = [&](std::string_view text) { all += fmt::format("|{}:{}", text.size(), text); };
  for (const auto* text :
       {&chat.begin, &chat.system, &chat.system_in_user, &chat.user, &chat.assistant_begin,
        &chat.assistant_end, &chat.assistant_after, &chat.generation_prompt})
    add(*text);
  if (chat.default_system) add(*chat.default_system);
  for (const std::string& special : chat.specials) add(special);
  return all;
}

}  // namespace capstan
