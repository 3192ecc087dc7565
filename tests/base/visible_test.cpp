#include "base/visible.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

using namespace std::string_literals;

TEST(Visible, LeavesTextAsItIs) {
  for (const std::string text : {"", "plain", "two\nlines\tand a tab", "Grüße, 日本語 🦙",
                                 "\u00a0no-break space", "back\\slash"})
    EXPECT_EQ(visible(text), text);
}

TEST(Visible, ShowsControlCharactersAsEscapes) {
  EXPECT_EQ(visible("\x1b]0;title\x07red \x1b[31m"), "\\x1b]0;title\\x07red \\x1b[31m");
  EXPECT_EQ(visible("a\rb\b\x7f\0z"s), "a\\x0db\\x08\\x7f\\x00z");
  EXPECT_EQ(visible("\u009b31m \u0080 \u009f \u00a1"), "\\x9b31m \\x80 \\x9f \u00a1")
      << "the eight-bit forms of escape sequences";
  for (int c = 0; c < 0x20; ++c) {
    const std::string one(1, static_cast<char>(c));
    EXPECT_EQ(visible(one) == one, c == '\n' || c == '\t') << c;
  }
}

TEST(Visible, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(visible("caf\xe9 \x9b[31m \xc2"), "caf\\xe9 \\x9b[31m \\xc2");
  EXPECT_EQ(visible("\xed\xa0\x80\xffok"), "\\xed\\xa0\\x80\\xffok");
}

}  // namespace
}  // namespace capstan
