#include "base/visible.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace capstan {
namespace {

bool is_control(unsigned char c) {
  return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

// A text that is UTF-8.
void append_valid(std::string& out, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F: eight-bit forms of ESC [ and others.
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (c == 0xC2 && next < 0xA0) {
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else if (is_control(c)) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += text[i];
    }
  }
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto bad = invalid_utf8(text);
    append_valid(out, text.substr(0, bad.value_or(text.size())));
    if (!bad) break;
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[*bad]));
    text.remove_prefix(*bad + 1);
  }
  return out;
}

}  // namespace capstan
