// Deadlines as people write them.

#include "cli/deadline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "base/error.h"

namespace capstan::cli {
namespace {

// Thursday, 2026-11-19 10:00 of Berlin, where 2027-03-28 has 23 hours.
class Deadline : public testing::Test {
 protected:
  Deadline() {
    ::setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    ::tzset();
    std::tm day{};
    day.tm_year = 126;
    day.tm_mon = 10;
    day.tm_mday = 19;
    day.tm_hour = 10;
    day.tm_isdst = -1;
    now = std::chrono::system_clock::from_time_t(std::mktime(&day));
  }
  ~Deadline() override {
    ::unsetenv("TZ");
    ::tzset();
  }
  double hours(const char* text) const { return seconds_until(text, now) / 3600; }
  std::string refused(const char* text) const {
    try {
      seconds_until(text, now);
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::usage) << text;
      return e.what();
    }
    ADD_FAILURE() << "took '" << text << "'";
    return "";
  }

  std::chrono::system_clock::time_point now;
};

TEST(Terms, AreThoseOfContracts) {
  EXPECT_EQ(hours_of_term("2 weeks", "--term"), 336);
  EXPECT_EQ(hours_of_term("6mo", "--term"), 4380);
  EXPECT_EQ(hours_of_term("1Y", "--term"), 8760);
  EXPECT_EQ(hours_of_term("10 days", "--term"), 240);
  for (const char* wrong : {"", "1", "1h", "y", "-1y", "1 fortnight"})
    EXPECT_THROW(hours_of_term(wrong, "--term"), Error) << wrong;
}

TEST_F(Deadline, IsATimeFromNow) {
  EXPECT_EQ(hours("36h"), 36);
  EXPECT_EQ(hours("1.5 hours"), 1.5);
  EXPECT_EQ(hours("90 min"), 1.5);
  EXPECT_EQ(hours("90m"), 1.5);
  EXPECT_EQ(hours("1 hour"), 1);
  EXPECT_EQ(hours("3 days"), 72);
  EXPECT_EQ(hours("2d"), 48);
  EXPECT_EQ(hours("2 Weeks"), 336);
  EXPECT_EQ(hours("7200s"), 2);
}

TEST_F(Deadline, IsTheNextDayOfThatNameAtFive) {
  EXPECT_EQ(hours("friday"), 31);
  EXPECT_EQ(hours("tomorrow"), 31);
  EXPECT_EQ(hours("Today"), 7);
  EXPECT_EQ(hours("Fri"), 31);
  EXPECT_EQ(hours("sunday"), 79);
  EXPECT_EQ(hours("thursday"), 7) << "today, which ends at 17:00";
  EXPECT_EQ(hours("wednesday"), 6 * 24 + 7);
  now += std::chrono::hours(7);
  EXPECT_EQ(hours("thursday"), 7 * 24) << "today has ended";
  EXPECT_EQ(hours("friday"), 24);
}

TEST_F(Deadline, IsADateWithOrWithoutATime) {
  EXPECT_EQ(hours("2026-11-19"), 7);
  EXPECT_EQ(hours("2026-11-20 09:30"), 23.5);
  EXPECT_EQ(hours("2026-11-20T09:30"), 23.5);
  EXPECT_EQ(hours("2026-12-01"), 12 * 24 + 7);
  EXPECT_EQ(hours("2028-02-29") - hours("2028-02-28"), 24);
  EXPECT_EQ(hours("2027-03-28") - hours("2027-03-27"), 23) << "the clocks change";
}

TEST_F(Deadline, ThatHasPassedIsRefused) {
  for (const char* past : {"2020-01-01", "2026-11-19 09:59", "2026-11-18", "0h", "0 days"})
    EXPECT_NE(refused(past).find("has passed"), std::string::npos) << past;
}

TEST_F(Deadline, SaysWhatItExpected) {
  for (const char* wrong : {"",
                            " ",
                            "soon",
                            "fridayy",
                            "fr",
                            "36",
                            "36 h now",
                            "-5h",
                            "+5h",
                            "nan h",
                            "inf h",
                            "0x10h",
                            "1e3h",
                            "1..5h",
                            "h",
                            "36 parsecs",
                            "2026-13-01",
                            "2026-00-01",
                            "2026-11-31",
                            "2027-02-29",
                            "2026-11-20 25:00",
                            "2026-11-20 09:60",
                            "2026-11-20 9",
                            "2026-11-20 09:30:10",
                            "20.11.2026",
                            "2026-11",
                            "2026-11-20 09:30 or so"}) {
    const std::string message = refused(wrong);
    EXPECT_NE(message.find("expected a time from now (36h, 3 days), a day (tomorrow, friday"),
              std::string::npos)
        << wrong << ": " << message;
    EXPECT_NE(message.find(std::string("found '") + wrong + "'"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace capstan::cli
