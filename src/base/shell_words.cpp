#include "base/shell_words.h"

#include "base/text.h"

namespace capstan {

std::string in_shell(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  // Single quotes are easier to read inside double ones, if nothing has a meaning there.
  const bool has_single = word.find('\'') != std::string_view::npos;
  if (has_single && word.find_first_of("\"$`\\!") == std::string_view::npos)
    return '"' + std::string(word) + '"';
  return "'" + replaced(std::string(word), "'", "'\\''") + "'";
}

std::string in_shell(std::span<const std::string> words) {
  std::string command;
  for (const std::string& word : words) command += (command.empty() ? "" : " ") + in_shell(word);
  return command;
}

std::string in_python(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\'' || c == '\\')
      out += {'\\', c};
    else
      out += c;
  }
  return out + "'";
}

}  // namespace capstan
