#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/file_tokenizer.h"
#include "data/tokenizer/long_encoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/token_decoder.h"

namespace capstan {

// A Hugging Face tokenizer.json of type BPE. encode equals tokenizer.encode(text,
// add_special_tokens=False), decode equals tokenizer.decode(ids, skip_special_tokens=True).
class JsonTokenizer final : public FileTokenizer, public LongEncoder {
 public:
  // Throws Fault::file at `where`, with line and column, for content that is invalid or not
  // supported.
  JsonTokenizer(const nlohmann::json& file, std::string_view text, std::string_view where);

  std::vector<int32_t> encode(std::string_view text) const override {
    return encode_long(text, {});
  }
  std::vector<int32_t> encode_long(std::string_view text,
                                   const std::function<void(int64_t)>& progress) const override;
  std::unique_ptr<TextStream> stream() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  int32_t vocab_size() const override;

  // The name of an id's token; null for an unknown id.
  const std::string* token(int32_t id) const;
  bool is_special(int32_t id) const { return added_.is_special(id); }
  const TokenDecoder& decoder() const { return decoder_; }
  // The special token that Hugging Face programs put before a text, from the file's post_processor.
  std::optional<std::string> template_start() const { return template_start_; }

 private:
  void encode_segment(std::string text, bool at_start, std::vector<int32_t>& ids,
                      const Bpe::Encoded& encoded) const;
  void encode_words(std::string text, bool at_start, std::vector<int32_t>& ids,
                    const Bpe::Encoded& encoded) const;

  Bpe model_;
  std::unique_ptr<Normalizer> normalizer_;  // null: none
  AddedTokens added_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;  // null: none
  TokenDecoder decoder_;
  std::optional<std::string> template_start_;
};

}  // namespace capstan
