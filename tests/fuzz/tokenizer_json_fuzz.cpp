// Feeds bytes to the reader of tokenizer.json: it must accept or throw Fault::file. What it accepts
// must encode and decode any text within its vocabulary, and a stream must give what decode gives.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"

namespace {

using namespace capstan;

void use(const JsonTokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  const auto stream = tokenizer.stream();
  std::string pieces;
  for (const int32_t id : ids) pieces += stream->push(id);
  pieces += stream->finish();
  if (pieces != tokenizer.decode(ids)) std::abort();
  for (int32_t id = -1; id < 40; ++id) tokenizer.decode(std::vector<int32_t>{id, id + 1});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const nlohmann::json file = parse_json(text, "fuzz");
    is_byte_tokenizer(file);
    const JsonTokenizer tokenizer(file, text, "fuzz");
    use(tokenizer, "It's the tide \xE2\x82\xAC\xFF 1234  <s>word</s>\n\n e\xCC\x81");
    use(tokenizer, text.substr(0, 300));
  } catch (const Error& e) {
    if (e.fault() != Fault::file) std::abort();
  }
  return 0;
}
