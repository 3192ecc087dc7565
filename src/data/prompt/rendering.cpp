#include "data/prompt/rendering.h"

#include <algorithm>

namespace capstan {
namespace {

// The first token name in `text`, and its position.
struct Found {
  size_t at;
  std::string_view name;
};

Found first_special(std::string_view text, std::span<const std::string_view> specials) {
  Found found{std::string_view::npos, {}};
  for (const std::string_view name : specials) {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) continue;
    if (at < found.at || (at == found.at && name.size() > found.name.size())) found = {at, name};
  }
  return found;
}

// Text between two special tokens, with the positions where targets begin or end.
class Segment {
 public:
  void add(const Piece& piece) {
    if (piece.text.empty()) return;
    if (piece.learn != learning_) borders_.push_back(text_.size());
    learning_ = piece.learn;
    text_ += piece.text;
  }

  void flush(EncodedPieces& out, const Tokenizer& tokenizer) {
    if (text_.empty()) return;
    const auto first = static_cast<int32_t>(out.tokens.size());
    const auto ids = tokenizer.encode(text_);
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    if (learning_) borders_.push_back(text_.size());
    for (size_t i = 0; i + 1 < borders_.size(); i += 2) {
      const int32_t from = first + tokens_before(borders_[i], ids, tokenizer);
      const int32_t to = first + tokens_before(borders_[i + 1], ids, tokenizer);
      out.learned.push_back({from, to});
    }
    *this = {};
  }

 private:
  // Number of leading tokens that the text before the boundary has on its own, too: the next token
  // spans the boundary, or begins there.
  int32_t tokens_before(size_t border, std::span<const int32_t> ids,
                        const Tokenizer& tokenizer) const {
    if (border == 0) return 0;
    if (border == text_.size()) return static_cast<int32_t>(ids.size());
    const auto part = tokenizer.encode(std::string_view(text_).substr(0, border));
    const auto differs = std::mismatch(ids.begin(), ids.end(), part.begin(), part.end()).first;
    return static_cast<int32_t>(differs - ids.begin());
  }

  std::string text_;
  std::vector<size_t> borders_;  // positions where targets begin, end, begin …
  bool learning_ = false;
};

}  // namespace

void add_pieces(std::vector<Piece>& pieces, std::string_view text,
                std::span<const std::string_view> specials, bool learn) {
  while (!text.empty()) {
    const Found found = first_special(text, specials);
    const size_t plain = std::min(found.at, text.size());
    if (plain > 0) pieces.push_back({std::string(text.substr(0, plain)), false, learn});
    if (!found.name.empty()) pieces.push_back({std::string(found.name), true, learn});
    text.remove_prefix(plain + found.name.size());
  }
}

std::string text_of(std::span<const Piece> pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

EncodedPieces encode(std::span<const Piece> pieces, const Tokenizer& tokenizer) {
  EncodedPieces out;
  Segment segment;
  for (const Piece& piece : pieces) {
    const auto id = piece.special ? tokenizer.id_of(piece.text) : std::nullopt;
    if (!id) {
      segment.add(piece);
      continue;
    }
    segment.flush(out, tokenizer);
    out.tokens.push_back(*id);
    const auto n = static_cast<int32_t>(out.tokens.size());
    if (piece.learn) out.learned.push_back({n - 1, n});
  }
  segment.flush(out, tokenizer);

  // Joins adjacent spans; boundaries inside one token may leave empty ones.
  std::vector<TargetSpan> joined;
  for (const TargetSpan& s : out.learned) {
    if (!joined.empty() && s.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, s.end);
    else if (s.begin < s.end)
      joined.push_back(s);
  }
  out.learned = std::move(joined);
  return out;
}

}  // namespace capstan
