#include "base/url.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(WithoutPassword, MasksWhoIsInAUrlAndNothingElse) {
  EXPECT_EQ(without_password("https://me:secret@host:80/a?b#c"), "https://***@host:80/a?b#c");
  EXPECT_EQ(without_password("http://token@host"), "http://***@host");
  EXPECT_EQ(without_password("http://me:p@ss:w@rd@host/x@y"), "http://***@host/x@y");
  EXPECT_EQ(without_password("me:secret@host/x"), "***@host/x")
      << "no URL, but it may be meant as one";
  for (const char* plain : {"https://host/a@b", "https://host?q=a@b", "host", "", "://", "a/b@c"})
    EXPECT_EQ(without_password(plain), plain);
}

}  // namespace
}  // namespace capstan
