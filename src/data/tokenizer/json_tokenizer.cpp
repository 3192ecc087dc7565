#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "base/utf8.h"
#include "data/tokenizer/utf8_stream.h"

namespace capstan {
namespace {

using nlohmann::json;

class JsonStream final : public TextStream {
 public:
  explicit JsonStream(const JsonTokenizer& tokenizer)
      : tokenizer_(tokenizer), steps_(tokenizer.decoder().start(text_)) {}

  std::string push(int32_t id) override {
    const std::string* token = tokenizer_.token(id);
    if (token && !tokenizer_.is_special(id)) steps_->push(*token);
    return std::exchange(text_, {});
  }
  std::string settle() override {
    steps_->settle();
    return std::exchange(text_, {});
  }
  std::string finish() override {
    steps_->finish();
    return std::exchange(text_, {});
  }

 private:
  const JsonTokenizer& tokenizer_;
  std::string text_;
  std::unique_ptr<DecodeStep> steps_;
};

AddedTokens added_tokens(const Spec& file, const Bpe& model, const Normalizer* normalizer) {
  static const json none = json::array();
  return {file.has("added_tokens") ? file.at("added_tokens") : Spec(none, "", ""), model,
          normalizer};
}

// The token that a post_processor's template begins with.
std::optional<std::string> start_of_template(const json& processor) {
  if (!processor.is_object()) return std::nullopt;
  const auto list = [&](const char* key) { return processor.value(key, json()); };
  if (list("processors").is_array()) {
    for (const json& step : processor["processors"])
      if (auto found = start_of_template(step)) return found;
  }
  if (!list("single").is_array() || processor["single"].empty()) return std::nullopt;
  const json& first = processor["single"][0];
  if (!first.is_object() || !first.contains("SpecialToken")) return std::nullopt;
  const json& special = first["SpecialToken"];
  if (!special.is_object() || !special.contains("id") || !special["id"].is_string())
    return std::nullopt;
  return special["id"].get<std::string>();
}

}  // namespace

JsonTokenizer::JsonTokenizer(const json& file, std::string_view text, std::string_view where)
    : FileTokenizer("tokenizer.json 1 " + sha256_of(text)),
      model_(Spec(file, text, where).at("model")),
      normalizer_(Spec(file, text, where).has("normalizer")
                      ? make_normalizer(Spec(file, text, where).at("normalizer"))
                      : nullptr),
      added_(added_tokens(Spec(file, text, where), model_, normalizer_.get())) {
  const Spec all(file, text, where);
  if (all.has("pre_tokenizer")) pre_tokenizer_ = make_pre_tokenizer(all.at("pre_tokenizer"));
  if (all.has("decoder")) decoder_ = TokenDecoder(all.at("decoder"));
  if (all.has("post_processor"))
    template_start_ = start_of_template(all.at("post_processor").value());
}

std::vector<int32_t> JsonTokenizer::encode_long(
    std::string_view text, const std::function<void(int64_t)>& progress) const {
  constexpr size_t kLongest = size_t{1} << 30;  // ICU counts in 32 bits
  require(text.size() <= kLongest, Fault::file,
          "a text of {} bytes is too long to encode at once: the limit is {}", text.size(),
          kLongest);
  std::string valid;
  if (invalid_utf8(text)) {
    valid = as_valid_utf8(text);
    text = valid;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  // Of the normalized text, which may be longer or shorter.
  constexpr size_t kBetween = size_t{1} << 16;
  size_t waiting = 0;
  Bpe::Encoded encoded;
  if (progress)
    encoded = [&](size_t bytes) {
      waiting += bytes;
      if (waiting >= kBetween) progress(static_cast<int64_t>(std::exchange(waiting, 0)));
    };
  for (const TextSegment& segment : added_.split_written(text)) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
    } else {
      encode_segment(std::string(segment.text), segment.text.data() == text.data(), ids, encoded);
    }
  }
  if (progress && waiting > 0) progress(static_cast<int64_t>(waiting));
  return ids;
}

void JsonTokenizer::encode_segment(std::string text, bool at_start, std::vector<int32_t>& ids,
                                   const Bpe::Encoded& encoded) const {
  if (normalizer_) normalizer_->apply(text);
  const std::vector<TextSegment> segments = added_.split_normalized(text);
  if (segments.size() == 1 && segments[0].token < 0)
    return encode_words(std::move(text), at_start, ids, encoded);
  for (const TextSegment& segment : segments) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
    } else {
      const bool first = at_start && segment.text.data() == text.data();
      encode_words(std::string(segment.text), first, ids, encoded);
    }
  }
}

void JsonTokenizer::encode_words(std::string text, bool at_start, std::vector<int32_t>& ids,
                                 const Bpe::Encoded& encoded) const {
  if (text.empty()) return;
  if (!pre_tokenizer_) return model_.encode(text, ids, encoded);
  Pieces pieces;
  pieces.parts.push_back({0, text.size()});
  pieces.text = std::move(text);
  pieces.at_start = at_start;
  pre_tokenizer_->apply(pieces);
  for (size_t i = 0; i < pieces.parts.size(); ++i) model_.encode(pieces[i], ids, encoded);
}

std::unique_ptr<TextStream> JsonTokenizer::stream() const {
  return std::make_unique<JsonStream>(*this);
}

std::optional<int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const std::optional<int32_t> added = added_.id_of(token);
  return added ? added : model_.id_of(token);
}

const std::string* JsonTokenizer::token(int32_t id) const {
  const std::string* added = added_.token(id);
  return added ? added : model_.token(id);
}

int32_t JsonTokenizer::vocab_size() const {
  return std::max(model_.size(), added_.size());
}

}  // namespace capstan
