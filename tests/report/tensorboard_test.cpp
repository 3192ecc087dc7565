#include "report/tensorboard.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "report/event_file.h"

namespace capstan {
namespace {

TEST(Crc32c, HasTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
}

TEST(EventRecord, IsFramedByLengthAndChecksums) {
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
  const auto crc_at = [&](size_t at) { return WireReader(record.substr(at, 4)).fixed<uint32_t>(); };
  EXPECT_EQ(crc_at(8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(crc_at(15), masked_crc32c("abc"));
}

TEST(Event, ReadsBackAsItWasWritten) {
  const std::array<Scalar, 3> scalars{
      {{"loss", 2.5f}, {"val_loss", -1e-7f}, {"odd", std::numeric_limits<float>::infinity()}}};
  const std::string file = version_event(1.5) + scalars_event(2.5, 1LL << 40, scalars) +
                           restart_event(3.5, 300) + scalars_event(4.5, 0, {});
  const auto events = read_event_file(file);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1.5);
  EXPECT_EQ(events[1].wall_time, 2.5);
  EXPECT_EQ(events[1].step, 1LL << 40);
  EXPECT_EQ(events[1].scalars.size(), 3u);
  EXPECT_EQ(events[1].scalars.at("loss"), 2.5f);
  EXPECT_EQ(events[1].scalars.at("val_loss"), -1e-7f);
  EXPECT_TRUE(std::isinf(events[1].scalars.at("odd")));
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[2].session_status, 1u) << "START";
  EXPECT_TRUE(events[3].scalars.empty());
}

}  // namespace
}  // namespace capstan
