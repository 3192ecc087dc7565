#include "data/tokenizer/known_patterns.h"

#include <gtest/gtest.h>

#include <random>

#include "data/tokenizer/code_points.h"
#include "data/tokenizer/golden_tokens.h"

namespace capstan {
namespace {

using unicode::Range;

class Patterns : public testing::TestWithParam<KnownPattern> {
 protected:
  void SetUp() override {
    if (!has_unicode()) GTEST_SKIP() << "built without ICU";
    expression_.emplace(expression_of(GetParam()), "here");
  }
  // The hand-written search finds what the expression does.
  void compare(const std::string& text) const {
    std::vector<Range> found;
    find_words(GetParam(), text, 0, found);
    const std::vector<Range> expected = expression_->matches(text);
    ASSERT_EQ(found.size(), expected.size()) << nlohmann::json(text).dump();
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].begin, expected[i].begin) << nlohmann::json(text).dump();
      ASSERT_EQ(found[i].end, expected[i].end) << nlohmann::json(text).dump();
    }
  }
  std::optional<unicode::Pattern> expression_;
};

TEST_P(Patterns, AreRecognized) {
  EXPECT_EQ(known_pattern(expression_of(GetParam())), GetParam());
  EXPECT_EQ(known_pattern("\\w+"), std::nullopt);
}

TEST_P(Patterns, FindWhatTheExpressionFinds) {
  for (const std::string& text : golden_texts()) compare(text);
}

TEST_P(Patterns, FindWhatTheExpressionFindsInRandomText) {
  // Few different characters, so that every order of classes is met.
  const std::u32string pool =
      U"  \n\r\t''stmdlrveSTMDLRVE\u017f\u212aab19.!\u00a0\u3000\u2028\u0085\u000b\u0301\u00e9"
      U"\u4f60\u0663\u00bd\u2167\U0001f642\u200d\u180e\ufeff";
  std::mt19937 random(7);
  for (int n = 0; n < 100'000 && !HasFatalFailure(); ++n) {
    std::string text;
    const size_t length = 1 + random() % 14;
    for (size_t i = 0; i < length; ++i) append_character(text, pool[random() % pool.size()]);
    compare(text);
  }
}

TEST_P(Patterns, FindWhatTheExpressionFindsAroundEveryCharacter) {
  std::string text;
  for (char32_t c = 1; c < 0x110000 && !HasFatalFailure(); ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    append_character(text, c);
    text += c % 3 == 0 ? "a" : c % 3 == 1 ? " " : "1'";
    append_character(text, c);
    if (text.size() < 4000) continue;
    compare(text);
    text.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Patterns,
                         testing::Values(KnownPattern::gpt2, KnownPattern::llama3,
                                         KnownPattern::qwen2));

}  // namespace
}  // namespace capstan
