#include "base/error.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(Error, CarriesWhoMustActAndTheMessage) {
  try {
    fail(Fault::file, "{}:{}: expected {}", "config.json", 3, "a number");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::file);
    EXPECT_EQ(e.exit_code(), 4);
    EXPECT_STREQ(e.what(), "config.json:3: expected a number");
  }
}

TEST(Error, ExitCodesAreThoseOfTheGuide) {
  EXPECT_EQ(Error(Fault::bug, "").exit_code(), 1);
  EXPECT_EQ(Error(Fault::usage, "").exit_code(), 2);
  EXPECT_EQ(Error(Fault::does_not_fit, "").exit_code(), 3);
  EXPECT_EQ(Error(Fault::file, "").exit_code(), 4);
  EXPECT_EQ(Error(Fault::device, "").exit_code(), 5);
  EXPECT_EQ(Error(Fault::peer, "").exit_code(), 6);
}

struct Counted {
  int* formatted;
};

}  // namespace
}  // namespace capstan

template <>
struct fmt::formatter<capstan::Counted> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const capstan::Counted& counted, Context& context) const {
    ++*counted.formatted;
    return context.out();
  }
};

namespace capstan {
namespace {

TEST(Require, FormatsOnlyWhenItThrows) {
  int formatted = 0;
  require(true, Fault::bug, "{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  EXPECT_THROW(require(false, Fault::bug, "{}", Counted{&formatted}), Error);
  EXPECT_EQ(formatted, 1);
}

}  // namespace
}  // namespace capstan
