#include "base/wrapped.h"

#include <algorithm>

namespace capstan {

int64_t columns_of(std::string_view text) {
  // Bytes that begin a character.
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string wrapped(std::string_view text, std::string_view begin, int64_t width) {
  std::string out(begin);
  const int64_t indent = columns_of(begin);
  int64_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const int64_t wide = columns_of(word);
    if (column > indent && column + 1 + wide > width) {
      out.append("\n").append(static_cast<size_t>(indent), ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
    at = end + 1;
  }
  return out + "\n";
}

}  // namespace capstan
