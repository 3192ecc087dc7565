#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/samples.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// A part of what the model reads.
struct Piece {
  std::string text;
  bool special = false;  // one token by its name, such as <|eot_id|>
  bool learn = false;    // counts for the loss

  bool operator==(const Piece&) const = default;
};

// Cuts `text` at the names of tokens that it holds; the longest name wins where several begin.
void add_pieces(std::vector<Piece>& pieces, std::string_view text,
                std::span<const std::string_view> specials, bool learn);

// All pieces as one text: what a template prints.
std::string text_of(std::span<const Piece> pieces);

struct EncodedPieces {
  std::vector<int32_t> tokens;
  std::vector<TargetSpan> learned;
};

// Special pieces by their ids; one that the tokenizer has no token for is text. All text between
// two special tokens is encoded as one string, so that it gives the tokens it gives in a document;
// a token that spans the border to a learned piece is learned.
EncodedPieces encode(std::span<const Piece> pieces, const Tokenizer& tokenizer);

}  // namespace capstan
