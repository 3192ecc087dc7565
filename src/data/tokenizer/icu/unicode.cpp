#include "data/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "data/tokenizer/code_points.h"

namespace capstan::unicode {
namespace {

constexpr char32_t kCharacters = 0x110000;

uint8_t class_of(UChar32 c) {
  const uint32_t category = U_GET_GC_MASK(c);
  const bool word = u_hasBinaryProperty(c, UCHAR_ALPHABETIC) ||
                    (category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
                    u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
  int bits = 0;
  if (category & U_GC_L_MASK) bits |= kLetter;
  if (category & U_GC_N_MASK) bits |= kNumber;
  if (u_isUWhiteSpace(c)) bits |= kSpace;
  if (word) bits |= kWord;
  if (category & U_GC_P_MASK) bits |= kPunctuation;
  if (category & U_GC_MN_MASK) bits |= kAccent;
  return static_cast<uint8_t>(bits);
}

std::vector<uint8_t> all_classes() {
  std::vector<uint8_t> table(kCharacters);
  for (char32_t c = 0; c < kCharacters; ++c) table[c] = class_of(static_cast<UChar32>(c));
  return table;
}

void check(UErrorCode status, const char* doing) {
  require(U_SUCCESS(status), Fault::device, "ICU failed while {}: {}", doing, u_errorName(status));
}

const icu::Normalizer2& normalizer(Form form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case Form::nfc: found = icu::Normalizer2::getNFCInstance(status); break;
    case Form::nfd: found = icu::Normalizer2::getNFDInstance(status); break;
    case Form::nfkc: found = icu::Normalizer2::getNFKCInstance(status); break;
    case Form::nfkd: found = icu::Normalizer2::getNFKDInstance(status); break;
  }
  check(status, "loading its normalization tables");
  return *found;
}

// Whether a repetition like {1,3} is followed by +: possessive in ICU, but a nested repetition in
// Oniguruma.
bool has_plus_after_braces(std::string_view expression) {
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '{') continue;
    const size_t end = expression.find_first_not_of("0123456789,", i + 1);
    if (end != std::string_view::npos && end > i + 1 && expression.substr(end, 2) == "}+")
      return true;
  }
  return false;
}

// Converts ascending UTF-16 positions to positions in the original text.
class ByteOf {
 public:
  explicit ByteOf(std::string_view text) : text_(text) {}
  size_t operator()(int32_t unit) {
    while (unit_ < unit) {
      const size_t bytes = character_bytes(text_[byte_]);
      byte_ += bytes;
      unit_ += bytes == 4 ? 2 : 1;
    }
    return byte_;
  }

 private:
  std::string_view text_;
  int32_t unit_ = 0;
  size_t byte_ = 0;
};

}  // namespace

std::string version() {
  return U_ICU_VERSION;
}

void require_available(std::string_view, std::string_view) {}

const uint8_t* classes() {
  static const std::vector<uint8_t> table = all_classes();
  return table.data();
}

std::string normalized(Form form, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<int32_t>(text.size()));
  normalizer(form).normalizeUTF8(
      0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, status);
  check(status, "normalizing text");
  return result;
}

std::string lowercased(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_character(text, i);
    if (c < 0x80) {
      result.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    } else {
      icu::UnicodeString(static_cast<UChar32>(c))
          .toLower(icu::Locale::getRoot())
          .toUTF8String(result);
    }
  }
  return result;
}

struct Pattern::Compiled {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string where;
};

Pattern::Pattern(std::string_view expression, std::string where) {
  require(!has_plus_after_braces(expression), Fault::file,
          "{}: the regular expression {} has a + after a {{…}}, which programs read differently; "
          "write (?:…{{…}})+ instead",
          where, in_quotes(expression));
  UErrorCode status = U_ZERO_ERROR;
  UParseError error{};
  const auto source = icu::UnicodeString::fromUTF8(
      icu::StringPiece(expression.data(), static_cast<int32_t>(expression.size())));
  std::unique_ptr<icu::RegexPattern> pattern(icu::RegexPattern::compile(source, error, status));
  require(U_SUCCESS(status), Fault::file,
          "{}: the regular expression {} is not valid at its character {}: {}", where,
          in_quotes(expression), error.offset + 1, u_errorName(status));
  compiled_ = std::make_unique<Compiled>(Compiled{std::move(pattern), std::move(where)});
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<Range> Pattern::matches(std::string_view text) const {
  constexpr int32_t kMaxTime = 20'000;  // in ICU's units of thousands of steps
  UErrorCode status = U_ZERO_ERROR;
  const auto wide = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled_->pattern->matcher(wide, status));
  check(status, "starting a search");
  matcher->setTimeLimit(kMaxTime, status);

  std::vector<Range> found;
  ByteOf byte_of(text);
  size_t last_end = std::string_view::npos;
  while (matcher->find(status)) {
    const size_t begin = byte_of(matcher->start(status));
    const size_t end = byte_of(matcher->end(status));
    // Oniguruma does not report an empty match right after another match.
    if (begin == end && begin == last_end) continue;
    found.push_back({begin, end});
    last_end = end;
  }
  require(U_SUCCESS(status), Fault::file,
          "{}: the regular expression failed on a text of {} bytes: {}", compiled_->where,
          text.size(), u_errorName(status));
  return found;
}

}  // namespace capstan::unicode
