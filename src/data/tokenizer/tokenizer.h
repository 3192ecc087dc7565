#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Text from ids that come one by one, in whole UTF-8 characters: what cannot be told yet is held
// back. The pieces together are what Tokenizer::decode gives for all the ids.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // The text that is certain now; perhaps nothing.
  virtual std::string push(int32_t id) = 0;
  // What was held back, as if the text ended here; ids that follow still continue it.
  virtual std::string settle() = 0;
  // What was held back. Nothing may be pushed afterwards.
  virtual std::string finish() = 0;
};

// Text to token ids and back. Const methods are safe from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The text alone: bos and eos are added by whoever makes samples, so that they cannot be doubled.
  // Special tokens that the text names ("</s>") become their ids where the tokenizer's files say
  // so, but for ByteTokenizer. Bytes that are no UTF-8 count as U+FFFD, but for ByteTokenizer.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Special ids (bos, eos, pad) and ids of no token give nothing. Bytes that are no UTF-8, as of a
  // sequence cut inside a character, become U+FFFD; ByteTokenizer gives them as they are.
  virtual std::string decode(std::span<const int32_t> ids) const;
  // The same, id by id. Must not outlive the tokenizer.
  virtual std::unique_ptr<TextStream> stream() const = 0;
  // Of ids that follow those of `before`, whose text is not given again: a space between the two is
  // a space, not the start of a text. Where they have no text, what follows is the start of one.
  std::unique_ptr<TextStream> stream_after(std::span<const int32_t> before) const;
  std::string decode_after(std::span<const int32_t> before, std::span<const int32_t> ids) const;

  // The token of exactly this name, special or not: "<|eot_id|>", "</s>".
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  // Every id is below it. A model may have more rows than that, never fewer.
  virtual int32_t vocab_size() const = 0;
  // What begins a document; some families have no such token.
  virtual std::optional<int32_t> bos() const = 0;
  // What ends a document or a response.
  virtual int32_t eos() const = 0;

  // A SHA-256 of all that decides the ids of a text, bos and eos: equal fingerprints, equal ids.
  virtual std::string fingerprint() const = 0;
};

// The text with bos (where there is one) before it and eos after it.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text);

// One id per byte: no files, no vocabulary to train, any text round-trips.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kPad = 258;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::unique_ptr<TextStream> stream() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  int32_t vocab_size() const override { return 259; }
  std::optional<int32_t> bos() const override { return kBos; }
  int32_t eos() const override { return kEos; }
  std::string fingerprint() const override;
};

}  // namespace capstan
