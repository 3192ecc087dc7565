#include "tensor/queue.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace capstan {
namespace {

using namespace std::chrono_literals;

const OpTotal* find(const Queue& q, std::string_view op) {
  for (const OpTotal& r : q.totals())
    if (r.calls > 0 && r.op == op) return &r;
  return nullptr;
}

TEST(SimQueue, AdvancesItsClockByTheModel) {
  Arena arena;
  Queue q(Device::sim, arena, {.name = "m", .flops_per_second = 10, .bytes_per_second = 1});
  {
    const auto span = q.account({"linear", OpKind::product}, {.flops = 20, .bytes = 1});
    std::this_thread::sleep_for(2ms);  // real time does not count
  }
  const auto other = q.account({"rope", OpKind::elementwise}, {.flops = 0, .bytes = 3});
  EXPECT_DOUBLE_EQ(q.seconds(), 5);
  EXPECT_DOUBLE_EQ(q.total().flops, 20);
  EXPECT_DOUBLE_EQ(q.total().bytes, 4);
}

TEST(CpuQueue, TakesSubnormalNumbersForZeroInEveryThread) {
  Arena arena{Arena::Heap{}};
  const Queue q(Device::cpu, arena);
  volatile float small = 1e-30f;  // not for the compiler to compute with
  std::vector<float> products(1000, 1.0f);
  parallel_for(std::ssize(products), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) products[static_cast<size_t>(i)] = small * 1e-10f;
  });
  for (const float p : products) EXPECT_EQ(p, 0.0f);
  EXPECT_GT(small * 1e-7f, 0.0f);  // normal numbers stay
}

TEST(CpuQueue, MeasuresTheTimeOfTheSpan) {
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  {
    const auto span = q.account({"linear", OpKind::product}, {.flops = 1, .bytes = 1});
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GE(q.seconds(), 0.005);
  EXPECT_EQ(find(q, "linear")->calls, 1);
}

TEST(Queues, AddUpCallsOfTheSameOpByName) {
  Arena arena;
  Queue q(Device::sim, arena);
  const std::string same = "linear";  // another address, the same name
  for (int i = 0; i < 3; ++i)
    (void)q.account({"linear", OpKind::product}, {.flops = 2, .bytes = 0});
  (void)q.account({same.c_str(), OpKind::product}, {.flops = 1, .bytes = 0});
  (void)q.account({"rope", OpKind::elementwise}, {.flops = 5, .bytes = 0});
  ASSERT_NE(find(q, "linear"), nullptr);
  EXPECT_EQ(find(q, "linear")->calls, 4);
  EXPECT_DOUBLE_EQ(find(q, "linear")->cost.flops, 7);
  EXPECT_EQ(find(q, "rope")->calls, 1);
  q.reset_totals();
  EXPECT_EQ(find(q, "linear"), nullptr);
  EXPECT_DOUBLE_EQ(q.total().flops, 0);
}

TEST(Queues, AddUpAnyNumberOfOps) {
  Arena arena;
  Queue q(Device::sim, arena);
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i) names.push_back("op" + std::to_string(i));
  for (const std::string& name : names)
    (void)q.account({name.c_str(), OpKind::copy}, {.flops = 0, .bytes = 1});
  EXPECT_EQ(q.totals().size(), names.size());
  EXPECT_EQ(q.total().bytes, 200);
}

TEST(Queues, SimGoesWithARecordingArenaAndNoOtherDoes) {
  Arena recording;
  Arena heap{Arena::Heap{}};
  EXPECT_THROW(Queue(Device::cpu, recording), Error);
  EXPECT_THROW(Queue(Device::sim, heap), Error);
  EXPECT_NO_THROW(Queue(Device::sim, recording));
  EXPECT_NO_THROW(Queue(Device::cpu, heap));
}

TEST(CpuQueue, CopiesToAndFromTensors) {
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  const Buffer x = arena.make(Category::data, DType::i32, {2, 3}, "x");
  const std::array<int32_t, 6> in = {1, 2, 3, 4, 5, 6};
  std::array<int32_t, 6> out{};
  q.upload(x, in.data());
  q.download(out.data(), x);
  EXPECT_EQ(in, out);
  EXPECT_EQ(q.value<int32_t>(x->rows(1, 1).cols(2, 1)), 6);
  EXPECT_THROW(q.upload(x->cols(0, 2), in.data()), Error);
  EXPECT_THROW(q.download(out.data(), x->cols(0, 2)), Error);
  EXPECT_THROW(q.value<int32_t>(x), Error);
  EXPECT_THROW(q.value<float>(x->rows(0, 1).cols(0, 1)), Error);
}

TEST(SimQueue, DownloadsZerosAndIgnoresUploads) {
  Arena arena;
  Queue q(Device::sim, arena);
  const Buffer x = arena.make(Category::data, DType::i32, {3}, "x");
  std::array<int32_t, 3> values = {1, 2, 3};
  q.upload(x, values.data());
  q.download(values.data(), x);
  EXPECT_EQ(values, (std::array<int32_t, 3>{0, 0, 0}));
}

TEST(Queues, HostMemoryIsASecondArenaForAGpuAlone) {
  Arena heap{Arena::Heap{}};
  EXPECT_EQ(&Queue(Device::cpu, heap).host(), &heap);
  Arena device, host;
  EXPECT_EQ(&Queue(Device::sim, device, host).host(), &device);
  EXPECT_EQ(&Queue(Device::sim, device, {.device = Device::cuda}).host(), &device);
  Queue q(Device::sim, device, host, {.device = Device::cuda});
  EXPECT_EQ(&q.arena(), &device);
  EXPECT_EQ(&q.host(), &host);
  const Buffer state = q.host().make(Category::optimizer, DType::f32, {100}, "state");
  EXPECT_EQ(host.plan().total_bytes, 512);
  EXPECT_EQ(device.plan().total_bytes, 0);
  EXPECT_THROW(Queue(Device::sim, device, heap, {.device = Device::cuda}), Error);
}

TEST(Queues, OnACpuTheHostReachesEveryTensorInItsPlace) {
  Arena arena{Arena::Heap{}};
  const Queue q(Device::cpu, arena);
  const Buffer x = arena.make(Category::data, DType::i32, {3}, "x");
  EXPECT_TRUE(q.on_host(x));
}

// Work that is on the queue when a tensor in host memory is read or written comes before that.
TEST(GpuQueue, CopiesToAndFromHostMemoryInTheirOrder) {
  std::string_view why;
  if (!cuda_present(&why)) GTEST_SKIP() << why;
  constexpr int64_t kValues = 1 << 20;
  const auto plan_of = [](Arena& arena) {
    const Buffer x = arena.make(Category::data, DType::i32, {kValues}, "x");
    return arena.plan();
  };
  Arena recording;
  const MemoryPlan plan = plan_of(recording);
  Arena device(plan, Device::cuda), host(plan, Arena::Pinned{});
  Queue q(Device::cuda, device, host);
  const Buffer near = device.make(Category::data, DType::i32, {kValues}, "x");
  const Buffer far = host.make(Category::data, DType::i32, {kValues}, "x");
  EXPECT_FALSE(q.on_host(near));
  ASSERT_TRUE(q.on_host(far));
  EXPECT_TRUE(q.on_host(far->rows(kValues - 1, 1)));
  EXPECT_EQ(far->as<int32_t>()[kValues - 1], 0) << "a setup begins with zeros";
  std::vector<int32_t> in(kValues), out(kValues);
  for (int64_t i = 0; i < kValues; ++i) in[static_cast<size_t>(i)] = static_cast<int32_t>(3 * i);
  q.upload(near, in.data());
  q.upload(far, in.data());
  q.download(out.data(), far);
  EXPECT_EQ(out, in);
  EXPECT_EQ(q.value<int32_t>(far->rows(5, 1)), 15);
  EXPECT_EQ(host.allocated_bytes(), plan.total_bytes);
}

TEST(Queues, ScratchIsPlannedAsWorkspace) {
  Arena arena;
  Queue q(Device::sim, arena);
  {
    const auto step = arena.phase("step");
    const Buffer scratch = q.scratch(DType::f32, {100}, "scores");
  }
  const MemoryPlan plan = arena.plan();
  EXPECT_EQ(at(plan.highest, Category::workspace), 512);
  EXPECT_EQ(plan.peak_buffer, "scores");
}

}  // namespace
}  // namespace capstan
