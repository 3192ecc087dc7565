#include "tensor/copy_ahead.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace capstan {
namespace {

TEST(CopiesAhead, TakeASecondPlaceOnTheDeviceAndTwoRoomsOnTheHost) {
  Arena device, host;
  Queue q(Device::sim, device, host, {.device = Device::cuda});
  const Buffer to = device.make(Category::data, DType::i32, {100}, "to");
  const CopyAhead ahead(q, to, Category::data, "ahead");
  EXPECT_FALSE(ahead.active()) << "there is nothing to copy on sim";
  EXPECT_EQ(at(device.plan().highest, Category::data), 2 * 512);
  EXPECT_EQ(at(host.plan().highest, Category::data), 2 * 512);
}

TEST(CopiesAhead, TakeNothingWithoutHostMemoryBesideTheDevices) {
  Arena cpu{Arena::Heap{}}, sim, host;
  Queue on_cpu(Device::cpu, cpu), alone(Device::sim, sim, {.device = Device::cuda}),
      for_cpu(Device::sim, sim, host, {.device = Device::cpu});
  for (Queue* q : {&on_cpu, &alone, &for_cpu}) {
    const ByCategory before = q->arena().highest();
    CopyAhead ahead(*q, Tensor(nullptr, DType::i32, {100}), Category::data, "ahead");
    EXPECT_FALSE(ahead.active());
    EXPECT_EQ(q->arena().highest(), before);
    EXPECT_THROW(ahead.host_buffer(), Error);
    EXPECT_THROW(ahead.send(1), Error);
    EXPECT_THROW(ahead.receive(), Error);
  }
  EXPECT_EQ(host.plan().total_bytes, 0);
}

TEST(CopiesAhead, ReachTheTensorWhenTheyAreReceivedAndNotBefore) {
  std::string_view why;
  if (!cuda_present(&why)) GTEST_SKIP() << why;
  constexpr int64_t kRows = 1 << 18;
  const auto request = [](Queue& q) {
    return q.arena().make(Category::data, DType::i32, {kRows}, "to");
  };
  Arena device, host;
  {
    Queue q(Device::sim, device, host, {.device = Device::cuda});
    const Buffer to = request(q);
    const CopyAhead ahead(q, to, Category::data, "ahead");
  }
  Arena near(device.plan(), Device::cuda), far(host.plan(), Arena::Pinned{});
  Queue q(Device::cuda, near, far);
  const Buffer to = request(q);
  CopyAhead ahead(q, to, Category::data, "ahead");
  ASSERT_TRUE(ahead.active());
  EXPECT_THROW(ahead.receive(), Error) << "nothing was sent";
  std::vector<int32_t> found(kRows), expected(kRows, 0);
  const auto send = [&](int32_t first, int64_t rows) {
    int32_t* const values = ahead.host_buffer().as<int32_t>();
    std::iota(values, values + rows, first);
    ahead.send(rows);
  };
  for (int32_t n = 1; n < 9; ++n) {
    const int64_t rows = kRows / n;
    send(1000 * n, rows);
    q.download(found.data(), to);
    EXPECT_EQ(found, expected) << "as they were, before " << n;
    if (n % 3 == 0) send(2000 * n, rows);  // the one before is lost
    ahead.receive();
    EXPECT_THROW(ahead.receive(), Error) << "once";
    std::iota(expected.begin(), expected.begin() + rows, (n % 3 == 0 ? 2000 : 1000) * n);
    q.download(found.data(), to);
    EXPECT_EQ(found, expected) << n;
  }
}

}  // namespace
}  // namespace capstan
