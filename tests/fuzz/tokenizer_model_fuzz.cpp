// Feeds bytes to the reader of tokenizer.model: it must accept or throw Fault::file, and keep from
// the SentencePiece library all that it would not survive.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"

namespace {

using namespace capstan;

void use(const SentencePieceTokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  const auto stream = tokenizer.stream();
  std::string pieces;
  for (const int32_t id : ids) pieces += stream->push(id);
  pieces += stream->finish();
  if (pieces != tokenizer.decode(ids)) std::abort();
  for (int32_t id = -1; id < 40; ++id) tokenizer.decode(std::vector<int32_t>{id, id + 1});
  tokenizer.id_of("</s>");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const SentencePieceTokenizer tokenizer(file, "fuzz");
    use(tokenizer, "It's the tide \xE2\x82\xAC\xFF 1234  <s>word</s>\n\n e\xCC\x81");
    use(tokenizer, file.substr(0, 300));
  } catch (const Error& e) {
    if (e.fault() != Fault::file) std::abort();
  }
  return 0;
}
