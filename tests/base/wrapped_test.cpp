#include "base/wrapped.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two three", "  - ", 11), "  - one two\n    three\n");
  EXPECT_EQ(wrapped("one two three", "  - ", 10), "  - one\n    two\n    three\n");
  EXPECT_EQ(wrapped("one two three", "", 80), "one two three\n");
}

TEST(Wrapped, CountsCharacters) {
  EXPECT_EQ(columns_of("2 × µs"), 6);
  EXPECT_EQ(wrapped("2 × 3", "· ", 7), "· 2 × 3\n");
  EXPECT_EQ(wrapped("2 × 3", "· ", 6), "· 2 ×\n  3\n");
}

TEST(Wrapped, KeepsAWordThatIsTooLong) {
  EXPECT_EQ(wrapped("a longest-of-all b", "> ", 8), "> a\n  longest-of-all\n  b\n");
  EXPECT_EQ(wrapped("", "> ", 8), "> \n");
}

}  // namespace
}  // namespace capstan
