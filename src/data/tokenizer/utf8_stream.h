#pragma once

#include <string>
#include <string_view>

namespace capstan {

// What becomes of bytes that are no UTF-8. `replace` writes one U+FFFD for each maximal part of a
// character, as Unicode 15 chapter 3 recommends and Rust and Python do.
enum class BadBytes { keep, replace };

// Bytes that come in pieces, as text in whole characters. However the bytes are cut into pieces,
// the texts together are the same.
class Utf8Stream {
 public:
  explicit Utf8Stream(BadBytes bad) : bad_(bad) {}

  // Appends to `text` what is complete; the beginning of a character is held back.
  void push(std::string_view bytes, std::string& text);
  // Appends what was held back.
  void finish(std::string& text);

 private:
  void put_bad(std::string_view bytes, std::string& text) const;

  BadBytes bad_;
  std::string held_;
};

// The text with bad bytes replaced.
std::string as_valid_utf8(std::string_view bytes);

}  // namespace capstan
