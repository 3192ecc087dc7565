#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Unicode support for tokenizers, from ICU (folder icu/). A program built without ICU (folder
// no_icu/) refuses the tokenizers that need it. Texts are valid UTF-8. Everything here is thread
// safe.
namespace capstan::unicode {

// Throws Fault::file, naming what needs ICU ("a Split by regular expression") and where, unless ICU
// is available. Call it before the functions below.
void require_available(std::string_view what, std::string_view where);

std::string version();  // version of ICU: "72.1"; "" without it

// Bit flags for the classes of a character.
inline constexpr uint8_t kLetter = 1;        // general category L
inline constexpr uint8_t kNumber = 2;        // N
inline constexpr uint8_t kSpace = 4;         // property White_Space
inline constexpr uint8_t kWord = 8;          // \w of regular expressions
inline constexpr uint8_t kPunctuation = 16;  // P
inline constexpr uint8_t kAccent = 32;       // Mn

// The classes of every character: 0x110000 bytes, built on the first call.
const uint8_t* classes();

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalized(Form form, std::string_view text);

// Each character on its own: without the rule for a final sigma.
std::string lowercased(std::string_view text);

struct Range {
  size_t begin, end;  // bytes
};

// A regular expression.
class Pattern {
 public:
  // Throws Fault::file at `where` if the expression is invalid, or if ICU interprets it differently
  // than Oniguruma, for which tokenizers' patterns are written.
  Pattern(std::string_view expression, std::string where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The matches from left to right, without overlaps. Throws Fault::file if the search takes more
  // memory or time than a reasonable pattern needs.
  std::vector<Range> matches(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace capstan::unicode
