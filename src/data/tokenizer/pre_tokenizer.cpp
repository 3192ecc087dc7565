#include "data/tokenizer/pre_tokenizer.h"

#include <optional>
#include <utility>

#include "base/json_text.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/code_points.h"
#include "data/tokenizer/known_patterns.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/text_pattern.h"

namespace capstan {
namespace {

using unicode::Range;

// Splits every part: cut(part, offset) returns positions in the whole text.
template <class Cut>
void refine(Pieces& pieces, const Cut& cut) {
  if (pieces.parts.empty()) return;
  std::vector<Range> parts;
  const size_t begin = pieces.parts.front().begin;
  for (size_t i = 0; i < pieces.parts.size(); ++i)
    for (const Range& r : cut(pieces[i], pieces.parts[i].begin)) parts.push_back(r);
  pieces.parts = std::move(parts);
  if (pieces.parts.empty() || pieces.parts.front().begin != begin) pieces.at_start = false;
}

// Rewrites every part: write(part, is_first, text) appends the new text.
template <class Write>
void rewrite(Pieces& pieces, const Write& write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (size_t i = 0; i < pieces.parts.size(); ++i) {
    const size_t begin = text.size();
    write(pieces[i], i == 0 && pieces.at_start, text);
    pieces.parts[i] = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(const Spec& spec) {
    for (const Spec& step : spec.at("pretokenizers").elements())
      steps_.push_back(make_pre_tokenizer(step));
  }
  void apply(Pieces& pieces) const override {
    for (const auto& step : steps_) step->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

// Splits by one of the known expressions, whose matches cover the text: isolated.
void split_by(KnownPattern pattern, Pieces& pieces) {
  std::vector<Range> words;
  words.reserve(pieces.text.size() / 4);
  for (size_t i = 0; i < pieces.parts.size(); ++i)
    find_words(pattern, pieces[i], pieces.parts[i].begin, words);
  pieces.parts = std::move(words);
}

class Split final : public PreTokenizer {
 public:
  explicit Split(const Spec& spec)
      : pattern_(spec.at("pattern")),
        behavior_(behavior_of(spec, "behavior")),
        invert_(spec.flag("invert", false)) {
    const Spec pattern = spec.at("pattern");
    if (pattern.has("Regex") && behavior_ == Behavior::isolated)
      known_ = known_pattern(pattern.text("Regex"));
  }
  void apply(Pieces& pieces) const override {
    if (known_) return split_by(*known_, pieces);
    refine(pieces, [&](std::string_view part, size_t offset) {
      std::vector<Range> matches = pattern_.matches(part);
      for (Range& m : matches) m = {m.begin + offset, m.end + offset};
      return split(offset, offset + part.size(), matches, behavior_, invert_);
    });
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
  std::optional<KnownPattern> known_;
};

// Splits at single characters of a class.
class SplitAtCharacters final : public PreTokenizer {
 public:
  SplitAtCharacters(uint8_t classes, Behavior behavior) : classes_(classes), behavior_(behavior) {}
  void apply(Pieces& pieces) const override {
    const uint8_t* classes = unicode::classes();
    refine(pieces, [&](std::string_view part, size_t offset) {
      std::vector<Range> matches;
      for (size_t i = 0; i < part.size();) {
        const size_t begin = i;
        const char32_t c = next_character(part, i);
        const bool ascii_sign = classes_ == unicode::kPunctuation && c < 0x80 && c > 0x20 &&
                                c != 0x7F &&
                                (classes[c] & (unicode::kLetter | unicode::kNumber)) == 0;
        if ((classes[c] & classes_) || ascii_sign) matches.push_back({offset + begin, offset + i});
      }
      return split(offset, offset + part.size(), matches, behavior_, false);
    });
  }

 private:
  uint8_t classes_;
  Behavior behavior_;
};

// \w+|[^\w\s]+
class Whitespace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    const uint8_t* classes = unicode::classes();
    const auto kind = [&](char32_t c) {
      return (classes[c] & unicode::kWord) ? 1 : (classes[c] & unicode::kSpace) ? 0 : 2;
    };
    refine(pieces, [&](std::string_view part, size_t offset) {
      std::vector<Range> words;
      int before = 0;
      for (size_t i = 0; i < part.size();) {
        const size_t begin = offset + i;
        const int here = kind(next_character(part, i));
        if (here != 0 && here == before) words.back().end = offset + i;
        if (here != 0 && here != before) words.push_back({begin, offset + i});
        before = here;
      }
      return words;
    });
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const Spec& spec)
      : prefix_(spec.flag("add_prefix_space", true)), splits_(spec.flag("use_regex", true)) {
    if (splits_) unicode::require_available("ByteLevel with use_regex", spec.location());
  }
  void apply(Pieces& pieces) const override {
    if (prefix_) {
      rewrite(pieces, [](std::string_view part, bool, std::string& text) {
        if (!part.starts_with(' ')) text.push_back(' ');
        text.append(part);
      });
    }
    if (splits_) split_by(KnownPattern::gpt2, pieces);
    rewrite(pieces,
            [](std::string_view part, bool, std::string& text) { append_byte_names(text, part); });
  }

 private:
  bool prefix_, splits_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const Spec& spec)
      : mark_(spec.text("replacement")), splits_(spec.flag("split", true)) {
    if (mark_.empty() || character_bytes(mark_[0]) != mark_.size())
      spec.refuse("replacement: expected one character, found {}", in_quotes(mark_));
    const std::string scheme = spec.has("prepend_scheme")            ? spec.text("prepend_scheme")
                               : spec.flag("add_prefix_space", true) ? "always"
                                                                     : "never";
    if (scheme != "always" && scheme != "first" && scheme != "never")
      spec.refuse("prepend_scheme: expected always, first or never, found {}", in_quotes(scheme));
    always_ = scheme == "always";
    first_ = scheme == "first";
  }
  void apply(Pieces& pieces) const override {
    rewrite(pieces, [&](std::string_view part, bool is_first, std::string& text) {
      const bool marked = part.starts_with(' ') || part.starts_with(mark_);
      if (!marked && (always_ || (first_ && is_first))) text += mark_;
      for (const char c : part) c == ' ' ? text += mark_ : text += c;
    });
    if (!splits_) return;
    refine(pieces, [&](std::string_view part, size_t offset) {
      std::vector<Range> marks;
      for (size_t i = part.find(mark_); i != part.npos; i = part.find(mark_, i + mark_.size()))
        marks.push_back({offset + i, offset + i + mark_.size()});
      return split(offset, offset + part.size(), marks, Behavior::merged_with_next, false);
    });
  }

 private:
  std::string mark_;
  bool splits_, always_ = false, first_ = false;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Spec& spec) {
  const std::string type = spec.type();
  if (type == "Sequence") return std::make_unique<Sequence>(spec);
  if (type == "Split") return std::make_unique<Split>(spec);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(spec);
  if (type == "Metaspace") return std::make_unique<Metaspace>(spec);

  const bool known = type == "Digits" || type == "Whitespace" || type == "WhitespaceSplit" ||
                     type == "Punctuation";
  if (known) unicode::require_available("the pre-tokenizer " + type, spec.location());
  if (type == "Digits") {
    const bool alone = spec.flag("individual_digits", false);
    return std::make_unique<SplitAtCharacters>(unicode::kNumber,
                                               alone ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit")
    return std::make_unique<SplitAtCharacters>(unicode::kSpace, Behavior::removed);
  if (type == "Punctuation") {
    const Behavior behavior =
        spec.has("behavior") ? behavior_of(spec, "behavior") : Behavior::isolated;
    return std::make_unique<SplitAtCharacters>(unicode::kPunctuation, behavior);
  }
  spec.refuse(
      "unknown pre-tokenizer {}; the known ones are Sequence, Split, ByteLevel, Metaspace, Digits, "
      "Whitespace, WhitespaceSplit, Punctuation",
      in_quotes(type));
}

}  // namespace capstan
