#pragma once

#include <string_view>

namespace capstan {

// Checks that a tokenizer.model (a SentencePiece ModelProto) is safe for the SentencePiece library,
// which does not validate its input. Throws Fault::file unless
//   - it is a well-formed message with pieces, exactly one of them the unknown piece;
//   - pieces are valid UTF-8 without zero bytes, neither empty nor too long, and unique;
//   - scores are finite, types and ids known, byte pieces complete;
//   - the normalizer's table stays within its bounds, and there is no denormalizer.
// Takes little time and memory compared with the library.
void check_sentencepiece_model(std::string_view file, std::string_view where);

}  // namespace capstan
