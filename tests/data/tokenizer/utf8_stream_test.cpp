#include "data/tokenizer/utf8_stream.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {
namespace {

TEST(Utf8Stream, ReplacesEachMaximalPart) {
  EXPECT_EQ(as_valid_utf8("a\u20ac\U0001F642"), "a\u20ac\U0001F642");
  EXPECT_EQ(as_valid_utf8("a\xE2\x82"), "a\uFFFD");
  EXPECT_EQ(as_valid_utf8("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(as_valid_utf8("\xF0\x9F\x99z\x80"), "\uFFFDz\uFFFD");
  EXPECT_EQ(as_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
  EXPECT_EQ(as_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD") << "overlong";
}

TEST(Utf8Stream, CutsDoNotMatter) {
  const std::string bytes = "x\u20ac\xE2\x82\u00e9\xFF\U0001F642\xF0\x9F";
  for (const BadBytes bad : {BadBytes::keep, BadBytes::replace}) {
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      Utf8Stream stream(bad);
      std::string text;
      stream.push(std::string_view(bytes).substr(0, cut), text);
      stream.push(std::string_view(bytes).substr(cut), text);
      stream.finish(text);
      EXPECT_EQ(text, bad == BadBytes::keep ? bytes : as_valid_utf8(bytes)) << cut;
    }
  }
}

TEST(ByteTokenizerStream, HoldsHalfCharactersBack) {
  const ByteTokenizer tokenizer;
  const auto stream = tokenizer.stream();
  EXPECT_EQ(stream->push('a'), "a");
  EXPECT_EQ(stream->push(0xE2), "");
  EXPECT_EQ(stream->push(ByteTokenizer::kEos), "");
  EXPECT_EQ(stream->push(0x82), "");
  EXPECT_EQ(stream->push(0xAC), "\u20ac");
  EXPECT_EQ(stream->push(0xC3), "");
  EXPECT_EQ(stream->finish(), "\xC3") << "as decode gives it";
}

TEST(ByteTokenizerNames, AreThoseOfItsJson) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.id_of("A"), 'A');
  EXPECT_EQ(tokenizer.id_of("\u0120"), ' ');
  EXPECT_EQ(tokenizer.id_of("<pad>"), ByteTokenizer::kPad);
  EXPECT_EQ(tokenizer.id_of("AB"), std::nullopt);
  EXPECT_EQ(tokenizer.id_of(""), std::nullopt);
}

}  // namespace
}  // namespace capstan
