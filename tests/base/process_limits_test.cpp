#include "base/process_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "support/message_of.h"

namespace capstan {
namespace {

// This much may be taken, at the most, until the end.
class Limit {
 public:
  Limit(int resource, int64_t bytes) : resource_(static_cast<__rlimit_resource>(resource)) {
    ::getrlimit(resource_, &before_);
    const rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource_, &limit), 0);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { ::setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

TEST(ProcessLimits, AreTheLesserOfAddressSpaceAndData) {
  if (process_limits().memory) GTEST_SKIP() << "this process has a limit already";
  const int64_t much = int64_t{1} << 50;  // more than sanitizers take
  {
    const Limit space(RLIMIT_AS, much);
    EXPECT_EQ(process_limits().memory, much);
    EXPECT_LT(process_limits().memory_left, much);
    EXPECT_GT(process_limits().memory_left, 0);
    const Limit data(RLIMIT_DATA, much / 2);
    EXPECT_EQ(process_limits().memory, much / 2);
    EXPECT_LT(process_limits().memory_left, much / 2);
    EXPECT_NO_THROW(require_room_to_compute());
  }
  EXPECT_FALSE(process_limits().memory);
  EXPECT_FALSE(process_limits().memory_left);
}

TEST(ProcessLimits, RefuseWhatCannotCompute) {
  if (process_limits().memory) GTEST_SKIP() << "this process has a limit already";
  const Limit data(RLIMIT_DATA, 0);
  EXPECT_EQ(process_limits().memory_left, 0);
  const std::string message = message_of(Fault::does_not_fit, require_room_to_compute);
  EXPECT_TRUE(
      message.starts_with("does not fit: this process is limited to 0 B (ulimit -v or -d) "
                          "with 0 B left, but "))
      << message;
  EXPECT_NE(message.find("raise the limit"), std::string::npos) << message;
  EXPECT_THROW(require_room_for_products(), Error);
}

}  // namespace
}  // namespace capstan
