#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/samples.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// A part of the model's input.
struct Piece {
  std::string text;
  bool special = false;  // one token by name, such as <|eot_id|>
  bool learn = false;    // a target of the loss

  bool operator==(const Piece&) const = default;
};

// Splits `text` at the token names in it; the longest name wins if several begin at the same place.
void add_pieces(std::vector<Piece>& pieces, std::string_view text,
                std::span<const std::string_view> specials, bool learn);

// All pieces as one text, as a template prints it.
std::string text_of(std::span<const Piece> pieces);

struct EncodedPieces {
  std::vector<int32_t> tokens;
  std::vector<TargetSpan> learned;
};

// Special pieces become their ids; if the tokenizer lacks the token, they are text. All text
// between two special tokens is encoded as one string, so it gets the same tokens as in a document;
// a token that spans the boundary to a target piece is a target.
EncodedPieces encode(std::span<const Piece> pieces, const Tokenizer& tokenizer);

}  // namespace capstan
