#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Characters of text that is known to be valid UTF-8.
namespace capstan {

// Length in bytes of the character that starts with this byte.
inline size_t character_bytes(char first) {
  const auto lead = static_cast<unsigned char>(first);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The character at byte i of the text; moves i to the next one.
inline char32_t next_character(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return ++i, lead;
  const size_t length = character_bytes(text[i]);
  char32_t c = lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) c = (c << 6) | (byte(i + k) & 0x3Fu);
  i += length;
  return c;
}

inline char32_t first_character(std::string_view text) {
  size_t i = 0;
  return next_character(text, i);
}

// Where the character before byte `end` begins; end > 0.
inline size_t previous_start(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

inline char32_t last_character(std::string_view text) {
  return first_character(text.substr(previous_start(text, text.size())));
}

inline void append_character(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xE0 | (c >> 12));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
    }
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace capstan
