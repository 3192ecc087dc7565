#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Text to token ids and back. Const methods are safe from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The text alone: bos and eos are added by whoever makes samples, so that they cannot be doubled.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Special ids (bos, eos, pad) give nothing. A sequence cut inside a character gives the bytes
  // that are there, so the text need not be valid UTF-8.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // Every id is below it. A model may have more rows than that, never fewer.
  virtual int32_t vocab_size() const = 0;
  // What begins a document; some families have no such token.
  virtual std::optional<int32_t> bos() const = 0;
  // What ends a document or a response.
  virtual int32_t eos() const = 0;
};

// The text with bos (where there is one) before it and eos after it.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text);

// One id per byte: no files, no vocabulary to train, any text round-trips.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kPad = 258;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int32_t vocab_size() const override { return 259; }
  std::optional<int32_t> bos() const override { return kBos; }
  int32_t eos() const override { return kEos; }
};

}  // namespace capstan
