#include "data/tokenizer/known_patterns.h"

#include "base/error.h"
#include "data/tokenizer/code_points.h"

namespace capstan {
namespace {

using unicode::kLetter, unicode::kNumber, unicode::kSpace;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A position in a text, and the class of its character; the end has no class.
struct Place {
  size_t at;
  char32_t c;
  uint8_t kind;
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Place place(size_t at) const {
    if (at >= text_.size()) return {at, 0, 0};
    size_t next = at;
    const char32_t c = next_character(text_, next);
    return {at, c, static_cast<uint8_t>(classes_[c] & (kLetter | kNumber | kSpace))};
  }
  bool at_end(const Place& p) const { return p.at >= text_.size(); }
  Place after(const Place& p) const { return place(p.at + character_bytes(text_[p.at])); }
  // Neither letter nor number nor space.
  bool is_sign(const Place& p) const { return !at_end(p) && p.kind == 0; }

  // The end of the run of characters of this class that begins at p.
  Place run(Place p, uint8_t kind) const {
    while (!at_end(p) && p.kind == kind) p = after(p);
    return p;
  }

  // The end of 's|'t|'re|'ve|'m|'ll|'d at p, or p if there is none. Case-insensitive if `any_case`;
  // U+017F then counts as an s.
  size_t contraction(const Place& p, bool any_case) const {
    if (p.c != '\'' || at_end(p)) return p.at;
    const auto letter = [&](const Place& q) -> char32_t {
      if (any_case && q.c >= 'A' && q.c <= 'Z') return q.c + 32;
      return any_case && q.c == 0x17F ? U's' : q.c;
    };
    const Place one = after(p);
    if (at_end(one)) return p.at;
    const Place two = after(one);
    const char32_t a = letter(one);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return two.at;
    if (at_end(two)) return p.at;
    const char32_t b = letter(two);
    const bool pair = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return pair ? after(two).at : p.at;
  }

  // The end of \s+(?!\S)|\s+ at p, which is a space: the last space of a run belongs to the next
  // word, unless it is the only one.
  size_t spaces(const Place& p) const {
    Place last = p, next = after(p);
    while (!at_end(next) && next.kind == kSpace) {
      last = next;
      next = after(next);
    }
    return at_end(next) || last.at == p.at ? next.at : last.at;
  }

  // The end of \s*[\r\n]+ at p, or p.
  size_t lines(const Place& p) const {
    size_t end = p.at;
    for (Place q = p; !at_end(q) && q.kind == kSpace; q = after(q))
      if (q.c == '\r' || q.c == '\n') end = q.at + 1;
    return end;
  }

 private:
  std::string_view text_;
  const uint8_t* classes_ = unicode::classes();
};

size_t gpt2_word(const Scanner& s, const Place& p) {
  if (const size_t end = s.contraction(p, false); end > p.at) return end;
  const Place body = p.c == ' ' ? s.after(p) : p;
  if (!s.at_end(body) && body.kind != kSpace) return s.run(body, body.kind).at;
  return s.spaces(p);
}

size_t llama3_word(const Scanner& s, const Place& p, int digits) {
  if (const size_t end = s.contraction(p, true); end > p.at) return end;
  if (p.kind == kLetter) return s.run(p, kLetter).at;
  if (p.kind == kNumber) {
    Place q = s.after(p);
    for (int n = 1; n < digits && q.kind == kNumber; ++n) q = s.after(q);
    return q.at;
  }
  const Place next = s.after(p);
  if (p.c != '\r' && p.c != '\n' && next.kind == kLetter) return s.run(next, kLetter).at;
  const Place sign = p.c == ' ' ? next : p;
  if (s.is_sign(sign)) {
    Place q = s.run(sign, 0);
    while (q.c == '\r' || q.c == '\n') q = s.after(q);
    return q.at;
  }
  if (const size_t end = s.lines(p); end > p.at) return end;
  return s.spaces(p);
}

template <class Word>
void walk(std::string_view text, size_t offset, std::vector<unicode::Range>& words,
          const Word& word_end) {
  const Scanner scanner(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(scanner, scanner.place(at));
    words.push_back({offset + at, offset + end});
    at = end;
  }
}

}  // namespace

std::string_view expression_of(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::gpt2: return kGpt2;
    case KnownPattern::llama3: return kLlama3;
    case KnownPattern::qwen2: return kQwen2;
  }
  fail(Fault::bug, "there is no such pattern");
}

std::optional<KnownPattern> known_pattern(std::string_view expression) {
  for (const KnownPattern p : {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2})
    if (expression_of(p) == expression) return p;
  return std::nullopt;
}

void find_words(KnownPattern pattern, std::string_view text, size_t offset,
                std::vector<unicode::Range>& words) {
  switch (pattern) {
    case KnownPattern::gpt2: return walk(text, offset, words, gpt2_word);
    case KnownPattern::llama3:
      return walk(text, offset, words,
                  [](const Scanner& s, const Place& p) { return llama3_word(s, p, 3); });
    case KnownPattern::qwen2:
      return walk(text, offset, words,
                  [](const Scanner& s, const Place& p) { return llama3_word(s, p, 1); });
  }
}

}  // namespace capstan
