#pragma once

#include <string_view>

namespace capstan {

// Proves a tokenizer.model (a SentencePiece ModelProto) safe for the SentencePiece library, which
// trusts what it reads. Throws Fault::file unless
//   - it is a well-formed message with pieces, of which exactly one is the unknown one;
//   - pieces are valid UTF-8 without zero bytes, not empty, not long, and none is there twice;
//   - scores are finite, types and ids known, byte pieces complete;
//   - the normalizer's table stays within itself, and there is none for the output.
// Needs little time and memory beside what the library needs.
void check_sentencepiece_model(std::string_view file, std::string_view where);

}  // namespace capstan
