#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace capstan {
namespace {

TEST(Units, BytesInPowersOf1024) {
  EXPECT_EQ(format_bytes(0.0), "0 B");
  EXPECT_EQ(format_bytes(640.0), "640 B");
  EXPECT_EQ(format_bytes(1023.0), "1023 B");
  EXPECT_EQ(format_bytes(1024.0), "1.00 KiB");
  EXPECT_EQ(format_bytes(1.25 * 0x1p30), "1.25 GiB");
  EXPECT_EQ(format_bytes(79.3 * 0x1p30), "79.3 GiB");
  EXPECT_EQ(format_bytes(640 * 0x1p40), "640 TiB");
  EXPECT_EQ(format_bytes(5000 * 0x1p50), "5000 PiB");
  EXPECT_EQ(format_bytes(-2048.0), "-2.00 KiB");
  EXPECT_EQ(format_bytes(-50 * 1024.0), "-50.0 KiB");
}

TEST(Units, OneOfAThingIsNotSeveral) {
  EXPECT_EQ(count(1, "sample"), "1 sample");
  for (const int64_t n : {0, 2, 1000, -1})
    EXPECT_EQ(count(n, "sample"), std::to_string(n) + " samples");
}

TEST(Units, RoundingNeverShowsAWholeNextUnit) {
  EXPECT_EQ(format_bytes(0x1p20 - 1), "1.00 MiB");
  EXPECT_EQ(format_count(999999), "1.00 M");
  EXPECT_EQ(format_count(9999), "10.0 K");
  EXPECT_EQ(format_count(99990), "100 K");
  EXPECT_EQ(format_duration(0.99999), "1.0 s");
  EXPECT_EQ(format_duration(59.99), "1:00");
  EXPECT_EQ(format_duration(3599.9), "1:00:00");
}

TEST(Units, CountsInPowersOf1000) {
  EXPECT_EQ(format_count(640), "640");
  EXPECT_EQ(format_count(15.2e6), "15.2 M");
  EXPECT_EQ(format_count(1.1e9), "1.10 B");
  EXPECT_EQ(format_count(2e12), "2.00 T");
}

TEST(Units, GroupedDigitsAreAllThere) {
  EXPECT_EQ(format_grouped(0), "0");
  EXPECT_EQ(format_grouped(980), "980");
  EXPECT_EQ(format_grouped(1980), "1,980");
  EXPECT_EQ(format_grouped(-230325), "-230,325");
  EXPECT_EQ(format_grouped(1234567), "1,234,567");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration(0), "0 ms");
  EXPECT_EQ(format_duration(0.812), "812 ms");
  EXPECT_EQ(format_duration(4.2), "4.2 s");
  EXPECT_EQ(format_duration(187), "3:07");
  EXPECT_EQ(format_duration(7387), "2:03:07");
  EXPECT_EQ(format_duration(100 * 3600), "100:00:00");
}

TEST(Units, DurationsThatAreNone) {
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

TEST(Units, ParsesAmountsOfMemory) {
  EXPECT_EQ(parse_bytes("1024"), 1024);
  EXPECT_EQ(parse_bytes("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(parse_bytes("24 GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("512mib"), int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("7 B"), 7);
}

TEST(Units, RefusesWhatIsNoAmountAndQuotesIt) {
  for (const char* text : {"", "GiB", "eighty", "80 XB", "-1GiB", "0", "0.5", "nan", "inf",
                           "1e30 PiB", "80GiB!", "9e18"}) {
    try {
      parse_bytes(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::usage);
      EXPECT_NE(std::string(e.what()).find("'" + std::string(text) + "'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace capstan
