#include "data/tokenizer/tokenizer.h"

#include "base/checksum.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/long_encoder.h"
#include "data/tokenizer/utf8_stream.h"

namespace capstan {
namespace {

class ByteStream final : public TextStream {
 public:
  std::string push(int32_t id) override {
    std::string text;
    const char byte = static_cast<char>(id);
    if (id >= 0 && id < 256) characters_.push({&byte, 1}, text);
    return text;
  }
  std::string settle() override {
    std::string text;
    characters_.finish(text);
    return text;
  }
  std::string finish() override { return settle(); }

 private:
  Utf8Stream characters_{BadBytes::keep};
};

std::string text_from(TextStream& pieces, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += pieces.push(id);
  return text + pieces.finish();
}

}  // namespace

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  return text_from(*stream(), ids);
}

std::unique_ptr<TextStream> Tokenizer::stream_after(std::span<const int32_t> before) const {
  std::unique_ptr<TextStream> pieces = stream();
  for (const int32_t id : before) pieces->push(id);
  pieces->settle();
  return pieces;
}

std::string Tokenizer::decode_after(std::span<const int32_t> before,
                                    std::span<const int32_t> ids) const {
  return text_from(*stream_after(before), ids);
}

std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text) {
  return encode_document(tokenizer, text, {});
}

std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text,
                                     const std::function<void(int64_t)>& progress) {
  const auto* watched = progress ? dynamic_cast<const LongEncoder*>(&tokenizer) : nullptr;
  std::vector<int32_t> ids =
      watched != nullptr ? watched->encode_long(text, progress) : tokenizer.encode(text);
  if (progress && watched == nullptr) progress(std::ssize(text));
  if (const auto bos = tokenizer.bos()) ids.insert(ids.begin(), *bos);
  ids.push_back(tokenizer.eos());
  return ids;
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids)
    if (id >= 0 && id < 256) text.push_back(static_cast<char>(id));
  return text;
}

std::unique_ptr<TextStream> ByteTokenizer::stream() const {
  return std::make_unique<ByteStream>();
}

std::optional<int32_t> ByteTokenizer::id_of(std::string_view token) const {
  if (token == "<s>") return kBos;
  if (token == "</s>") return kEos;
  if (token == "<pad>") return kPad;
  const std::optional<std::string> bytes = bytes_of_names(token);
  if (!bytes || bytes->size() != 1) return std::nullopt;
  return static_cast<unsigned char>(bytes->front());
}

std::string ByteTokenizer::fingerprint() const {
  return sha256_of("capstan bytes 1");
}

}  // namespace capstan
