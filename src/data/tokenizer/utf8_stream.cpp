#include "data/tokenizer/utf8_stream.h"

namespace capstan {
namespace {

enum class Kind { character, bad, cut };
struct Unit {
  Kind kind;
  size_t bytes;  // length of the character, of the bad part, or to the end of the text
};

// Classifies the beginning of the text (Unicode 15, table 3-7).
Unit first_unit(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Kind::character, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::bad, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Kind::cut, i};
    // The second byte reveals overlong forms, surrogates and too large values.
    const unsigned char low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::bad, i};
  }
  return {Kind::character, length};
}

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& text) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Unit unit = first_unit(bytes);
    const std::string_view here = bytes.substr(0, unit.bytes);
    switch (unit.kind) {
      case Kind::character: text.append(here); break;
      case Kind::bad: put_bad(here, text); break;
      case Kind::cut: held_ = here; break;
    }
    bytes.remove_prefix(unit.bytes);
  }
}

void Utf8Stream::finish(std::string& text) {
  if (!held_.empty()) put_bad(held_, text);
  held_.clear();
}

void Utf8Stream::put_bad(std::string_view bytes, std::string& text) const {
  text.append(bad_ == BadBytes::keep ? bytes : std::string_view("\uFFFD"));
}

std::string as_valid_utf8(std::string_view bytes) {
  std::string text;
  Utf8Stream stream(BadBytes::replace);
  stream.push(bytes, text);
  stream.finish(text);
  return text;
}

}  // namespace capstan
