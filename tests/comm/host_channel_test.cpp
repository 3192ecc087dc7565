// Bytes between ranks beside their collectives: comm/host_channel.h.

#include "comm/host_channel.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "comm/thread_group.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

using std::chrono::milliseconds;

TEST(HostChannel, EveryRankLearnsEveryText) {
  for (const int ranks : {1, 2, 5})
    run_as_threads(ranks, [&](Communicator group) {
      const auto channel = group.open_channel("talk");
      for (int round = 0; round < 50; ++round) {
        const std::string mine(static_cast<size_t>(group.rank() * round), 'x');
        const auto all = channel->exchange(mine);
        ASSERT_EQ(std::ssize(all), ranks);
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(all[static_cast<size_t>(r)], std::string(static_cast<size_t>(r * round), 'x'));
        EXPECT_EQ(channel->share(group.rank() == 0 ? "resume" : "other"), "resume");
      }
    });
}

TEST(HostChannel, TwoChannelsAndCollectivesDoNotMix) {
  run_as_threads(3, [](Communicator group) {
    const auto one = group.open_channel("one"), two = group.open_channel("two");
    auto aside = std::async(std::launch::async, [&] {
      for (int i = 0; i < 200; ++i)
        EXPECT_EQ(two->exchange(std::to_string(i))[2], std::to_string(i));
    });
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(one->exchange(std::to_string(-i))[1], std::to_string(-i));
    aside.get();
  });
}

TEST(HostChannel, AnAbortReachesTheOthersAndNotTheGroup) {
  run_as_threads(3, [](Communicator group) {
    const auto files = group.open_channel("files"), talk = group.open_channel("talk");
    if (group.rank() == 0)
      files->abort("the disk is full");
    else
      EXPECT_EQ(message_of(Fault::peer, [&] { files->exchange("slice"); }),
                "rank 0: the disk is full");
    EXPECT_EQ(talk->exchange("still here")[2], "still here");
  });
}

TEST(HostChannel, AFailedRankIsNamed) {
  const auto message = message_of(Fault::file, [] {
    run_as_threads(3, [](Communicator group) {
      const auto talk = group.open_channel("talk");
      if (group.rank() == 1) fail(Fault::file, "no such file");
      EXPECT_EQ(message_of(Fault::peer, [&] { talk->exchange("mine"); }), "rank 1: no such file");
    });
  });
  EXPECT_EQ(message, "no such file");
}

// A rank that is busy is not lost.
TEST(HostChannel, ABusyRankIsWaitedFor) {
  run_as_threads(
      2,
      [](Communicator group) {
        const auto talk = group.open_channel("talk");
        if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
        EXPECT_EQ(talk->exchange("mine")[0], "mine");
      },
      milliseconds(50));
}

TEST(HostChannel, MessagesOfAnotherSizeAreABug) {
  const auto message = message_of(Fault::bug, [] {
    run_as_threads(2, [](Communicator group) {
      const auto talk = group.open_channel("talk");
      std::byte bytes[8];
      if (group.rank() == 0)
        talk->send(bytes, 1);
      else
        talk->receive(std::span(bytes).first(4), 0);
    });
  });
  EXPECT_EQ(message, "channel talk: rank 0 sent 8 bytes, rank 1 expected 4");
}

}  // namespace
}  // namespace capstan::test
