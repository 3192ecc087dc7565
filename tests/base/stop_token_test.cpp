#include "base/stop_token.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace capstan {
namespace {

TEST(StopToken, ByDefaultNobodyAsks) {
  const StopToken token;
  EXPECT_FALSE(token.requested());
  EXPECT_EQ(token.signal(), 0);
  EXPECT_NO_THROW(token.check());
}

TEST(StopToken, AllCopiesLearnOfTheFirstRequest) {
  StopSource source;
  const StopToken token = source.token(), copy = token;
  EXPECT_FALSE(copy.requested());
  EXPECT_TRUE(source.request(SIGTERM));
  EXPECT_FALSE(source.request(SIGINT));
  EXPECT_EQ(token.signal(), SIGTERM);
  EXPECT_EQ(copy.signal(), SIGTERM);
  EXPECT_EQ(source.token().signal(), SIGTERM);
  try {
    copy.check();
    ADD_FAILURE() << "went on";
  } catch (const Stopped& e) {
    EXPECT_EQ(e.signal(), SIGTERM);
    EXPECT_STREQ(e.what(), "interrupted by SIGTERM");
  }
}

TEST(StopToken, OutlivesItsSource) {
  std::optional<StopSource> source(std::in_place);
  const StopToken token = source->token();
  source->request(SIGUSR1);
  source.reset();
  EXPECT_EQ(token.signal(), SIGUSR1);
}

TEST(StopToken, ReachesWorkOfAnotherThread) {
  StopSource source;
  bool ended = false;
  std::thread work([token = source.token(), &ended] {
    while (!token.requested()) std::this_thread::yield();
    ended = true;
  });
  source.request(SIGINT);
  work.join();
  EXPECT_TRUE(ended);
}

TEST(StopToken, SignalsHaveTheirNames) {
  EXPECT_EQ(name_of_signal(SIGHUP), "SIGHUP");
  EXPECT_EQ(name_of_signal(99), "signal 99");
}

}  // namespace
}  // namespace capstan
