#include "base/text.h"

#include <cstdlib>

namespace capstan {

std::string_view trimmed(std::string_view text, std::string_view around) {
  const size_t begin = text.find_first_not_of(around);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  size_t found = text.find(from);
  if (found == std::string::npos) return text;
  std::string out;
  size_t at = 0;
  for (; found != std::string::npos; found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace capstan
