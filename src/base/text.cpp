#include "base/text.h"

#include <cstdlib>

namespace capstan {

std::string_view trimmed(std::string_view text, std::string_view around) {
  const size_t begin = text.find_first_not_of(around);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace capstan
