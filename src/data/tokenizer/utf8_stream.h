#pragma once

#include <string>
#include <string_view>

namespace capstan {

// How to handle invalid UTF-8. `replace` writes one U+FFFD for each maximal part of a character, as
// Unicode 15 chapter 3 recommends and Rust and Python do.
enum class BadBytes { keep, replace };

// Turns bytes that arrive in pieces into text in whole characters. The result does not depend on
// how the bytes are cut.
class Utf8Stream {
 public:
  explicit Utf8Stream(BadBytes bad) : bad_(bad) {}

  // Appends the complete characters to `text`; buffers an incomplete one.
  void push(std::string_view bytes, std::string& text);
  // Appends the buffered bytes.
  void finish(std::string& text);

 private:
  void put_bad(std::string_view bytes, std::string& text) const;

  BadBytes bad_;
  std::string held_;
};

// The text with invalid bytes replaced.
std::string as_valid_utf8(std::string_view bytes);

}  // namespace capstan
