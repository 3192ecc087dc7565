#include "data/tokenizer/token_decoder.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/code_points.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/utf8_stream.h"

namespace capstan {
namespace {

using Next = std::unique_ptr<DecodeStep>;

class Collect final : public DecodeStep {
 public:
  explicit Collect(std::string& text) : DecodeStep(nullptr), text_(text) {}
  void push(std::string_view token) override { text_ += token; }

 private:
  std::string& text_;
};

class JoinBySpaces final : public DecodeStep {
 public:
  explicit JoinBySpaces(Next next) : DecodeStep(std::move(next)) {}
  void push(std::string_view token) override {
    if (!std::exchange(first_, false)) next_->push(" ");
    next_->push(token);
  }

 private:
  bool first_ = true;
};

// Joins the pieces of one token, for steps that need the whole token.
class Hold final : public DecodeStep {
 public:
  explicit Hold(Next next) : DecodeStep(std::move(next)) {}
  void push(std::string_view token) override { all_ += token; }
  void settle() override {
    next_->push(std::exchange(all_, {}));
    next_->settle();
  }
  void finish() override {
    next_->push(all_);
    next_->finish();
  }

 private:
  std::string all_;
};

class ReplaceStep final : public DecodeStep {
 public:
  ReplaceStep(Next next, std::shared_ptr<const TextPattern> pattern, std::string by)
      : DecodeStep(std::move(next)), pattern_(std::move(pattern)), by_(std::move(by)) {}
  void push(std::string_view token) override { next_->push(pattern_->replaced(token, by_)); }

 private:
  std::shared_ptr<const TextPattern> pattern_;
  std::string by_;
};

// "<0xE2>" "<0x82>" "<0xAC>" to "€". A run of such tokens decodes as a whole or not at all.
class ByteFallback final : public DecodeStep {
 public:
  explicit ByteFallback(Next next) : DecodeStep(std::move(next)) {}
  void push(std::string_view token) override {
    if (const auto byte = byte_of(token)) {
      run_.push_back(static_cast<char>(*byte));
    } else {
      flush();
      next_->push(token);
    }
  }
  void settle() override {
    flush();
    next_->settle();
  }
  void finish() override {
    flush();
    next_->finish();
  }

 private:
  static std::optional<unsigned> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>'))
      return std::nullopt;
    unsigned byte = 0;
    const char* digits = token.data() + 3;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2) return std::nullopt;
    return byte;
  }
  void flush() {
    if (run_.empty()) return;
    if (!invalid_utf8(run_)) {
      next_->push(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_->push("\uFFFD");
    }
    run_.clear();
  }
  std::string run_;
};

// Removes up to `start` copies of a character from the front of each token and up to `stop` from
// its end. `fused`: the whole text is one token, which settle() cuts in two.
class StripStep final : public DecodeStep {
 public:
  StripStep(Next next, std::string what, int64_t start, int64_t stop, bool fused)
      : DecodeStep(std::move(next)),
        what_(std::move(what)),
        start_(start),
        stop_(stop),
        fused_(fused) {}
  void push(std::string_view token) override {
    for (int64_t i = 0; i < start_ && token.starts_with(what_); ++i)
      token.remove_prefix(what_.size());
    for (int64_t i = 0; i < stop_ && token.ends_with(what_); ++i) token.remove_suffix(what_.size());
    if (fused_ && !token.empty()) start_ = 0;
    next_->push(token);
  }

 private:
  std::string what_;
  int64_t start_, stop_;
  bool fused_;
};

// The same for the front of one token that arrives in pieces.
class StripFront final : public DecodeStep {
 public:
  StripFront(Next next, std::string what, int64_t count)
      : DecodeStep(std::move(next)), what_(std::move(what)), left_(count) {}
  void push(std::string_view piece) override {
    for (; left_ > 0 && piece.starts_with(what_); --left_) piece.remove_prefix(what_.size());
    if (!piece.empty()) left_ = 0;
    next_->push(piece);
  }

 private:
  std::string what_;
  int64_t left_;
};

class ByteLevelStep final : public DecodeStep {
 public:
  explicit ByteLevelStep(Next next) : DecodeStep(std::move(next)) {}
  void push(std::string_view token) override {
    const std::optional<std::string> bytes = bytes_of_names(token);
    std::string text;
    characters_.push(bytes ? *bytes : token, text);
    next_->push(text);
  }
  void settle() override {
    flush();
    next_->settle();
  }
  void finish() override {
    flush();
    next_->finish();
  }

 private:
  void flush() {
    std::string text;
    characters_.finish(text);
    next_->push(text);
  }
  Utf8Stream characters_{BadBytes::replace};
};

class MetaspaceStep final : public DecodeStep {
 public:
  // `drops`: the first token loses its marks. `fused`: every piece belongs to it.
  MetaspaceStep(Next next, std::string mark, bool drops, bool fused)
      : DecodeStep(std::move(next)), mark_(std::move(mark)), drops_(drops), fused_(fused) {}
  void push(std::string_view token) override {
    std::string text;
    for (size_t i = 0; i < token.size();) {
      if (!token.substr(i).starts_with(mark_)) {
        text.push_back(token[i++]);
        continue;
      }
      if (!drops_) text.push_back(' ');
      i += mark_.size();
    }
    drops_ = drops_ && fused_;
    next_->push(text);
  }

 private:
  std::string mark_;
  bool drops_, fused_;
};

std::string one_character(const Spec& spec, const char* key) {
  const std::string c = spec.text(key);
  if (c.empty() || character_bytes(c[0]) != c.size())
    spec.refuse("{}: expected one character, found {}", key, in_quotes(c));
  return c;
}

}  // namespace

template <class Step, class... Args>
void TokenDecoder::add_step(const Args&... args) {
  makers_.emplace_back([=](Next next) { return std::make_unique<Step>(std::move(next), args...); });
}

TokenDecoder::TokenDecoder() {
  add_step<JoinBySpaces>();
}

TokenDecoder::TokenDecoder(const Spec& spec) {
  add(spec);
}

void TokenDecoder::add(const Spec& spec) {
  const std::string type = spec.type();
  if (type == "Sequence") {
    for (const Spec& step : spec.at("decoders").elements()) add(step);
  } else if (type == "Replace") {
    add_replace(spec);
  } else if (type == "ByteFallback") {
    hold_if_fused();
    add_step<ByteFallback>();
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    add_strip(spec);
  } else if (type == "ByteLevel") {
    hold_if_fused();
    add_step<ByteLevelStep>();
    fused_ = true;
  } else if (type == "Metaspace") {
    add_metaspace(spec);
  } else {
    spec.refuse(
        "unknown decoder {}; the known ones are Sequence, Replace, ByteFallback, Fuse, Strip, "
        "ByteLevel, Metaspace",
        in_quotes(type));
  }
}

void TokenDecoder::add_replace(const Spec& spec) {
  const auto pattern = std::make_shared<const TextPattern>(spec.at("pattern"));
  // Pieces never cut a character, but may cut anything longer.
  const bool one = !spec.at("pattern").has("Regex") && pattern->length() > 0u &&
                   character_bytes(spec.at("pattern").text("String")[0]) == pattern->length();
  if (!one) hold_if_fused();
  add_step<ReplaceStep>(pattern, spec.text("content"));
}

void TokenDecoder::add_strip(const Spec& spec) {
  constexpr int64_t kMost = 1 << 20;
  const std::string what = one_character(spec, "content");
  const int64_t start = spec.number("start", kMost), stop = spec.number("stop", kMost);
  if (fused_ && stop == 0) {
    add_step<StripFront>(what, start);
  } else {
    hold_if_fused();
    add_step<StripStep>(what, start, stop, fused_);
  }
}

void TokenDecoder::add_metaspace(const Spec& spec) {
  const std::string scheme = spec.has("prepend_scheme")            ? spec.text("prepend_scheme")
                             : spec.flag("add_prefix_space", true) ? "always"
                                                                   : "never";
  add_step<MetaspaceStep>(one_character(spec, "replacement"), scheme != "never", fused_);
}

void TokenDecoder::hold_if_fused() {
  if (fused_) add_step<Hold>();
}

std::unique_ptr<DecodeStep> TokenDecoder::start(std::string& text) const {
  Next chain = std::make_unique<Collect>(text);
  for (auto maker = makers_.rbegin(); maker != makers_.rend(); ++maker)
    chain = (*maker)(std::move(chain));
  return chain;
}

}  // namespace capstan
