#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace capstan {
namespace {

TEST(ByteTokenizer, EveryByteRoundTrips) {
  std::string text;
  for (int b = 0; b < 256; ++b) text.push_back(static_cast<char>(b));
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(ids[static_cast<size_t>(b)], b);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(ByteTokenizer, SpecialIdsLieAboveTheBytesAndDecodeToNothing) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.bos(), 256);
  EXPECT_EQ(tokenizer.eos(), 257);
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{256, 'h', 258, 'i', 257}), "hi");
}

TEST(Utf8, AcceptsEveryLengthOfCharacter) {
  EXPECT_EQ(invalid_utf8(""), std::nullopt);
  EXPECT_EQ(invalid_utf8("a\u00e9\u20ac\U0001F642\U0010FFFF"), std::nullopt);
}

TEST(Utf8, NamesTheFirstBadByte) {
  using namespace std::string_view_literals;
  EXPECT_EQ(invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(invalid_utf8("\x80"), 0u) << "a continuation alone";
  EXPECT_EQ(invalid_utf8("a\xC0\x80"sv), 1u) << "overlong, two bytes";
  EXPECT_EQ(invalid_utf8("a\xE0\x9F\x80"sv), 1u) << "overlong, three bytes";
  EXPECT_EQ(invalid_utf8("a\xF0\x8F\x80\x80"sv), 1u) << "overlong, four bytes";
  EXPECT_EQ(invalid_utf8("\xED\xA0\x80"sv), 0u) << "a surrogate";
  EXPECT_EQ(invalid_utf8("\xF4\x90\x80\x80"sv), 0u) << "above U+10FFFF";
  EXPECT_EQ(invalid_utf8("ok \xE2\x82"sv), 3u) << "cut short";
  EXPECT_EQ(invalid_utf8("\xE2\x82 x"sv), 0u) << "broken off";
}

}  // namespace
}  // namespace capstan
