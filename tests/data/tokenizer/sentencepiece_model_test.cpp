#include "data/tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "data/tokenizer/golden_tokens.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "support/message_of.h"

namespace capstan {
namespace {

// Fields of a message, as Protocol Buffers write them; all lengths here are below 128.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}
std::string field(int number, float value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return static_cast<char>(number << 3 | 5) + bytes;
}
std::string piece(const std::string& text, int type = 1, float score = 0) {
  return field(1, field(1, text) + field(2, score) + field(3, type));
}
const std::string kUnknown = piece("<unk>", 2);

std::string refusal(const std::string& file) {
  return message_of(Fault::file, [&] { SentencePieceTokenizer(file, "t.model"); });
}
void expect_refusal(const std::string& file, const std::string& part) {
  const std::string found = refusal(file);
  EXPECT_NE(found.find(part), std::string::npos) << found;
  EXPECT_EQ(found.rfind("t.model: ", 0), 0u) << found;
}

TEST(SentencePieceModel, AcceptsASmallOne) {
  const SentencePieceTokenizer tokenizer(kUnknown + piece("\u2581a") + piece("b"), "t.model");
  EXPECT_EQ(tokenizer.vocab_size(), 3);
  EXPECT_EQ(tokenizer.id_of("b"), 2);
  EXPECT_EQ(tokenizer.id_of("c"), std::nullopt);
}

TEST(SentencePieceModel, RefusesWhatIsNoMessage) {
  expect_refusal("", "it has no pieces");
  expect_refusal("\x0a\x7f", "byte 2: a field is longer than its container");
  expect_refusal("\x0f", "unsupported wire type");
  expect_refusal(std::string(11, '\xff'), "more than 64 bits");
  expect_refusal(kUnknown + "\x08", "a number is cut short");
  expect_refusal(kUnknown + field(1, 5), "wrong wire type");
  expect_refusal(std::string("\0\0", 2), "out of range");
}

TEST(SentencePieceModel, RefusesPiecesThatTheLibraryWouldNotSurvive) {
  expect_refusal(kUnknown + piece(""), "has 0 bytes");
  expect_refusal(kUnknown + piece("\xff"), "not UTF-8");
  expect_refusal(kUnknown + piece(std::string("a\0b", 3)), "not UTF-8 without zero bytes");
  expect_refusal(kUnknown + piece("a") + piece("a"), "appears twice, again as piece 2");
  expect_refusal(kUnknown + piece("a", 9), "unknown type 9");
  expect_refusal(kUnknown + piece("a", 1, std::nanf("")), "not finite");
  expect_refusal(piece("a"), "expected one unknown piece, found 0");
  expect_refusal(kUnknown + piece("<unk2>", 2), "expected one unknown piece, found 2");
  expect_refusal(kUnknown + piece("<0xZZ>", 6), "not a byte name");
}

TEST(SentencePieceModel, RefusesTablesThatPointOutOfThemselves) {
  const auto with_map = [](const std::string& map) { return kUnknown + field(3, field(2, map)); };
  const auto number = [](uint32_t n) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &n, 4);
    return bytes;
  };
  expect_refusal(with_map("abc"), "truncated");
  expect_refusal(with_map(number(100) + "abcd"), "are inconsistent");
  expect_refusal(with_map(number(0) + std::string(1, '\0')), "are inconsistent");
  expect_refusal(with_map(number(4) + number(1000u << 10) + std::string(1, '\0')),
                 "points outside itself");
}

TEST(SentencePieceModel, EveryTruncationIsAnError) {
  const std::string whole = read_text(golden_tokens() / "model/tokenizer.model");
  for (size_t size = 0; size < whole.size(); size += 97) {
    try {
      const SentencePieceTokenizer tokenizer(std::string_view(whole).substr(0, size), "t.model");
      tokenizer.encode("any text");  // cut between two fields, what is left may do
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::file);
    }
  }
}

}  // namespace
}  // namespace capstan
