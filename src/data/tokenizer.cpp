#include "data/tokenizer.h"

namespace capstan {

std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
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

}  // namespace capstan
