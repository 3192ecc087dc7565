#include "data/prompt/rendering.h"

#include <gtest/gtest.h>

#include "data/tokenizer/fake_tokenizer.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;
using Spans = std::vector<TargetSpan>;

TEST(Pieces, AreCutAtNamesOfTokens) {
  const std::vector<std::string_view> specials = {"<s", "<s>", "</s>"};
  std::vector<Piece> pieces;
  add_pieces(pieces, "<s>a</s></s>b", specials, true);
  EXPECT_EQ(pieces, (std::vector<Piece>{{"<s>", true, true},
                                        {"a", false, true},
                                        {"</s>", true, true},
                                        {"</s>", true, true},
                                        {"b", false, true}}))
      << "the longest name wins";
  EXPECT_EQ(text_of(pieces), "<s>a</s></s>b");
  pieces.clear();
  add_pieces(pieces, "plain", specials, false);
  EXPECT_EQ(pieces, (std::vector<Piece>{{"plain", false, false}}));
  add_pieces(pieces, "", specials, false);
  EXPECT_EQ(pieces.size(), 1u);
}

TEST(Pieces, TextBetweenTokensIsOneString) {
  const FakeTokenizer tokenizer({"<x>"}, "", "", {"bb"});
  const std::vector<Piece> pieces = {{"ab"}, {"b"}, {"<x>", true}, {"b"}, {"<unknown>", true}};
  const EncodedPieces encoded = encode(pieces, tokenizer);
  EXPECT_EQ(tokenizer.decode(encoded.tokens), "abb<x>b<unknown>");
  EXPECT_EQ(encoded.tokens[1], FakeTokenizer::kFirstMerge);
  EXPECT_EQ(encoded.tokens.size(), 3u + 10u) << "a name that is no token is text";
  EXPECT_TRUE(encoded.learned.empty());
}

TEST(Pieces, LearnedOnesBecomeSpans) {
  const FakeTokenizer tokenizer({"<x>"}, "", "", {"bb"});
  const auto learned = [&](const std::vector<Piece>& pieces) {
    return encode(pieces, tokenizer).learned;
  };
  const Piece x{"<x>", true, true};
  EXPECT_EQ(learned({{"aa"}, {"cc", false, true}, {"dd"}, {"e", false, true}}),
            (Spans{{2, 4}, {6, 7}}));
  EXPECT_EQ(learned({{"aa"}, {"cc", false, true}, x, {"dd", false, true}}), (Spans{{2, 7}}))
      << "neighbours are one";
  EXPECT_EQ(learned({{"ab"}, {"bc", false, true}}), (Spans{{1, 3}})) << "the border is in \"bb\"";
  EXPECT_EQ(learned({{"a"}, {"", false, true}}), Spans{});
  EXPECT_EQ(learned({{"a"}, {"", false, true}, x}), (Spans{{1, 2}}));
}

}  // namespace
}  // namespace capstan
