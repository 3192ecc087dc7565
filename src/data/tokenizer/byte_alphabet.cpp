#include "data/tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"
#include "data/tokenizer/code_points.h"

namespace capstan {
namespace {

struct Alphabet {
  std::array<std::string, 256> name;
  std::array<int, 0x180> byte;  // by character; -1: none

  Alphabet() {
    byte.fill(-1);
    char32_t unprintable = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char32_t c = printable ? static_cast<char32_t>(b) : unprintable++;
      append_character(name[static_cast<size_t>(b)], c);
      byte[c] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet the;
  return the;
}

}  // namespace

const std::string& name_of_byte(unsigned char byte) {
  return alphabet().name[byte];
}

void append_byte_names(std::string& names, std::string_view bytes) {
  const Alphabet& a = alphabet();
  for (const char byte : bytes) names += a.name[static_cast<unsigned char>(byte)];
}

std::optional<std::string> bytes_of_names(std::string_view names) {
  if (invalid_utf8(names)) return std::nullopt;
  const Alphabet& a = alphabet();
  std::string bytes;
  for (size_t i = 0; i < names.size();) {
    const char32_t c = next_character(names, i);
    if (c >= a.byte.size() || a.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(a.byte[c]));
  }
  return bytes;
}

}  // namespace capstan
