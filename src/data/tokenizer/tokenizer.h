#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Decodes ids one by one to text in whole UTF-8 characters; buffers what is still ambiguous. The
// pieces together equal Tokenizer::decode of all ids.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // The text that is certain now; may be empty.
  virtual std::string push(int32_t id) = 0;
  // Flushes the buffer as if the text ended here; later ids still continue it.
  virtual std::string settle() = 0;
  // The rest of the buffer. Call push no more afterwards.
  virtual std::string finish() = 0;
};

// Text to token ids and back. Const methods are thread safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The text alone: the code that makes samples adds bos and eos, so they are never doubled.
  // Special tokens in the text ("</s>") become their ids if the tokenizer's files say so, except
  // with ByteTokenizer. Invalid UTF-8 becomes U+FFFD, except with ByteTokenizer.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Special ids (bos, eos, pad) and unknown ids give no text. Invalid UTF-8, such as a sequence cut
  // inside a character, becomes U+FFFD; ByteTokenizer returns the bytes unchanged.
  virtual std::string decode(std::span<const int32_t> ids) const;
  // The same, id by id. Must not outlive the tokenizer.
  virtual std::unique_ptr<TextStream> stream() const = 0;
  // For ids that follow `before`, whose text is not repeated: a space at the boundary is kept,
  // unlike at the start of a text. If `before` has no text, the start is as usual.
  std::unique_ptr<TextStream> stream_after(std::span<const int32_t> before) const;
  std::string decode_after(std::span<const int32_t> before, std::span<const int32_t> ids) const;

  // The token with exactly this name, special or not: "<|eot_id|>", "</s>".
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  // Every id is below it. A model's vocabulary may be larger, never smaller.
  virtual int32_t vocab_size() const = 0;
  // The token that begins a document; some families have none.
  virtual std::optional<int32_t> bos() const = 0;
  // The token that ends a document or a response.
  virtual int32_t eos() const = 0;

  // SHA-256 of everything that determines ids, bos and eos: equal fingerprints mean equal ids.
  virtual std::string fingerprint() const = 0;
};

// The text with bos (if there is one) before it and eos after it.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text);

// One id per byte: needs no files and no trained vocabulary; any text round-trips.
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
