#include "data/tokenizer/normalizer.h"

#include <algorithm>
#include <vector>

#include "base/json_text.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/code_points.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace capstan {
namespace {

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(const Spec& spec) {
    for (const Spec& step : spec.at("normalizers").elements())
      steps_.push_back(make_normalizer(step));
  }
  void apply(std::string& text) const override {
    // Chained replacements could grow a text without bound.
    const size_t largest = (size_t{1} << 20) + 64 * text.size();
    for (const auto& step : steps_) {
      step->apply(text);
      require(text.size() <= largest, Fault::file,
              "the tokenizer's normalizer makes a text more than 64 times longer");
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const Spec& spec) : what_(spec.text("prepend")) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, what_);
  }

 private:
  std::string what_;
};

class ReplaceText final : public Normalizer {
 public:
  explicit ReplaceText(const Spec& spec)
      : pattern_(spec.at("pattern")), by_(spec.text("content")) {}
  void apply(std::string& text) const override { text = pattern_.replaced(text, by_); }

 private:
  TextPattern pattern_;
  std::string by_;
};

class Normal final : public Normalizer {
 public:
  explicit Normal(unicode::Form form) : form_(form) {}
  void apply(std::string& text) const override {
    const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (!std::all_of(text.begin(), text.end(), ascii)) text = unicode::normalized(form_, text);
  }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override { text = unicode::lowercased(text); }
};

class StripSpace final : public Normalizer {
 public:
  explicit StripSpace(const Spec& spec)
      : left_(spec.flag("strip_left", true)), right_(spec.flag("strip_right", true)) {}
  void apply(std::string& text) const override {
    const auto is_space = [](char32_t c) { return (unicode::classes()[c] & unicode::kSpace) != 0; };
    size_t begin = 0, end = text.size();
    while (left_ && begin < end && is_space(first_character(std::string_view(text).substr(begin))))
      begin += character_bytes(text[begin]);
    while (right_ && end > begin && is_space(last_character(std::string_view(text).substr(0, end))))
      end = previous_start(text, end);
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string kept;
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      if ((unicode::classes()[next_character(text, i)] & unicode::kAccent) == 0)
        kept.append(text, begin, i - begin);
    }
    text = std::move(kept);
  }
};

class ByteNames final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string names;
    append_byte_names(names, text);
    text = std::move(names);
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Spec& spec) {
  const std::string type = spec.type();
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(spec);
  if (type == "Prepend") return std::make_unique<Prepend>(spec);
  if (type == "Replace") return std::make_unique<ReplaceText>(spec);
  if (type == "ByteLevel") return std::make_unique<ByteNames>();

  const bool known = type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD" ||
                     type == "Lowercase" || type == "Strip" || type == "StripAccents";
  if (known) unicode::require_available("the normalizer " + type, spec.location());
  if (type == "NFC") return std::make_unique<Normal>(unicode::Form::nfc);
  if (type == "NFD") return std::make_unique<Normal>(unicode::Form::nfd);
  if (type == "NFKC") return std::make_unique<Normal>(unicode::Form::nfkc);
  if (type == "NFKD") return std::make_unique<Normal>(unicode::Form::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return std::make_unique<StripSpace>(spec);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  spec.refuse(
      "unknown normalizer {}; the known ones are Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, "
      "Lowercase, Strip, StripAccents, ByteLevel",
      in_quotes(type));
}

}  // namespace capstan
