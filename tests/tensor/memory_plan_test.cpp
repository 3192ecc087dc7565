#include "tensor/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace capstan {
namespace {

PlannedBuffer planned(int64_t bytes, int64_t begin, int64_t end,
                      Category category = Category::activations, const char* name = "b") {
  PlannedBuffer b;
  b.name = name;
  b.category = category;
  b.bytes = bytes;
  b.begin = begin;
  b.end = end;
  return b;
}

bool live_together(const PlannedBuffer& a, const PlannedBuffer& b) {
  return a.begin < b.end && b.begin < a.end;
}

bool overlap(const PlannedBuffer& a, const PlannedBuffer& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

void expect_sound(const MemoryPlan& plan) {
  const auto& setup = plan.phases[0].buffers;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    const auto& buffers = plan.phases[p].buffers;
    for (size_t i = 0; i < buffers.size(); ++i) {
      ASSERT_GE(buffers[i].offset, 0);
      ASSERT_EQ(buffers[i].offset % kBufferAlignment, 0);
      ASSERT_LE(buffers[i].offset + buffers[i].bytes, plan.total_bytes);
      for (size_t j = 0; j < i; ++j)
        ASSERT_FALSE(live_together(buffers[i], buffers[j]) && overlap(buffers[i], buffers[j]))
            << "phase " << p << ": " << i << ", " << j;
      for (const auto& s : setup) ASSERT_FALSE(p > 0 && overlap(buffers[i], s)) << "phase " << p;
    }
  }
  ASSERT_GE(plan.total_bytes, plan.peak_bytes);
  ASSERT_EQ(std::accumulate(plan.at_peak.begin(), plan.at_peak.end(), int64_t{0}), plan.peak_bytes);
  for (int c = 0; c < kCategories; ++c)
    ASSERT_GE(plan.highest[static_cast<size_t>(c)], plan.at_peak[static_cast<size_t>(c)]);
}

// The most that is live at once, counted the slow way.
int64_t slow_peak(const std::vector<PlannedBuffer>& buffers) {
  int64_t peak = 0;
  for (const auto& now : buffers) {
    int64_t live = 0;
    for (const auto& b : buffers)
      if (b.begin <= now.begin && now.begin < b.end) live += b.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(Pack, ReusesTheMemoryOfWhatIsGone) {
  MemoryPlan plan;
  plan.phases = {{"setup", {}}, {"step", {planned(512, 0, 2), planned(512, 2, 4)}}};
  pack(plan);
  expect_sound(plan);
  EXPECT_EQ(plan.total_bytes, 512);
  EXPECT_EQ(plan.peak_bytes, 512);
}

TEST(Pack, PutsPhasesOnTopOfEachOtherAndAboveTheSetup) {
  constexpr int64_t forever = PlannedBuffer::kForever;
  MemoryPlan plan;
  plan.phases = {{"setup", {planned(1024, 0, forever, Category::weights, "w")}},
                 {"train", {planned(2048, 1, 2, Category::activations, "x")}},
                 {"validate", {planned(4096, 3, 4, Category::cache, "kv")}}};
  pack(plan);
  expect_sound(plan);
  EXPECT_EQ(plan.total_bytes, 1024 + 4096);
  EXPECT_EQ(plan.peak_bytes, 1024 + 4096);
  EXPECT_EQ(plan.peak_phase, "validate");
  EXPECT_EQ(plan.peak_buffer, "kv");
  EXPECT_EQ(at(plan.at_peak, Category::weights), 1024);
  EXPECT_EQ(at(plan.at_peak, Category::activations), 0);
  EXPECT_EQ(at(plan.highest, Category::activations), 2048);
}

TEST(Pack, NamesTheMomentOfThePeak) {
  MemoryPlan plan;
  plan.phases = {{"setup", {}},
                 {"step",
                  {planned(256, 0, 9, Category::activations, "a"),
                   planned(512, 1, 3, Category::workspace, "peak"),
                   planned(256, 4, 8, Category::gradients, "c")}}};
  pack(plan);
  expect_sound(plan);
  EXPECT_EQ(plan.peak_bytes, 768);
  EXPECT_EQ(plan.peak_buffer, "peak");
  EXPECT_EQ(at(plan.highest, Category::gradients), 256);
}

TEST(Pack, EmptyPlansAndEmptyBuffers) {
  MemoryPlan plan;
  plan.phases = {{"setup", {}}};
  pack(plan);
  EXPECT_EQ(plan.total_bytes, 0);
  plan.phases.push_back({"step", {planned(0, 0, 3), planned(256, 1, 2)}});
  pack(plan);
  EXPECT_EQ(plan.total_bytes, 256);
  EXPECT_EQ(plan.peak_bytes, 256);
}

std::vector<PlannedBuffer> random_lifetimes(uint64_t seed, int count) {
  const Rng rng({.seed = seed});
  std::vector<PlannedBuffer> buffers;
  for (int i = 0; i < count; ++i) {
    const auto n = static_cast<uint64_t>(i);
    // Sizes over three orders of magnitude and lives from one event to most of the phase.
    const auto size = int64_t{1} << rng.below(3 * n, 10);
    const int64_t life =
        1 + static_cast<int64_t>(rng.below(3 * n + 1, 1 + rng.below(3 * n + 2, 60)));
    buffers.push_back(planned(size * kBufferAlignment, i, i + life));
  }
  return buffers;
}

// The lives that a forward and a backward pass make: the first made is the last released.
std::vector<PlannedBuffer> nested_lifetimes(uint64_t seed, int layers) {
  const Rng rng({.seed = seed});
  std::vector<PlannedBuffer> buffers;
  for (int i = 0; i < layers; ++i) {
    const auto size = static_cast<int64_t>(1 + rng.below(static_cast<uint64_t>(i), 8));
    buffers.push_back(planned(size * kBufferAlignment, 2 * i, 4 * layers - 2 * i));
    buffers.push_back(planned(3 * kBufferAlignment, 2 * i + 1, 2 * i + 2));
  }
  return buffers;
}

// What pack() promises: by size, each at the lowest offset that is free as long as it lives.
void place_slowly(std::vector<PlannedBuffer>& buffers) {
  std::vector<PlannedBuffer*> order;
  for (PlannedBuffer& b : buffers) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  for (size_t i = 0; i < order.size(); ++i) {
    PlannedBuffer& b = *order[i];
    const auto is_free = [&] {
      return std::none_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i),
                          [&](const PlannedBuffer* other) {
                            return live_together(b, *other) && overlap(b, *other);
                          });
    };
    for (b.offset = 0; !is_free();) b.offset += kBufferAlignment;
  }
}

TEST(Pack, TakesTheLowestPlaceTheLargestFirst) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<PlannedBuffer> slowly = random_lifetimes(seed, 10 + 9 * static_cast<int>(seed));
    slowly[slowly.size() / 2].end = PlannedBuffer::kForever;
    MemoryPlan plan;
    plan.phases = {{"setup", {}}, {"step", slowly}};
    pack(plan);
    place_slowly(slowly);
    for (size_t i = 0; i < slowly.size(); ++i)
      ASSERT_EQ(plan.phases[1].buffers[i].offset, slowly[i].offset) << seed << ": " << i;
  }
}

TEST(Pack, RandomLifetimesNeverOverlapAndLoseLittle) {
  double worst = 1;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryPlan plan;
    plan.phases = {{"setup", {}}, {"step", random_lifetimes(seed, 20 + static_cast<int>(seed))}};
    pack(plan);
    ASSERT_NO_FATAL_FAILURE(expect_sound(plan)) << "seed " << seed;
    ASSERT_EQ(plan.peak_bytes, slow_peak(plan.phases[1].buffers)) << "seed " << seed;
    worst = std::max(worst,
                     static_cast<double>(plan.total_bytes) / static_cast<double>(plan.peak_bytes));
  }
  EXPECT_LT(worst, 1.3);
}

TEST(Pack, ATrainingStepsLifetimesLoseAlmostNothing) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryPlan plan;
    plan.phases = {{"setup", {}}, {"step", nested_lifetimes(seed, 24)}};
    pack(plan);
    ASSERT_NO_FATAL_FAILURE(expect_sound(plan)) << "seed " << seed;
    EXPECT_LT(static_cast<double>(plan.total_bytes), 1.05 * static_cast<double>(plan.peak_bytes));
  }
}

TEST(Pack, IsDeterministicAndForgetsAnEarlierPacking) {
  MemoryPlan first, second;
  first.phases = {{"setup", {}}, {"step", random_lifetimes(3, 100)}};
  second = first;
  pack(first);
  pack(second);
  pack(second);
  EXPECT_EQ(first.total_bytes, second.total_bytes);
  EXPECT_EQ(first.highest, second.highest);
  for (size_t i = 0; i < 100; ++i)
    EXPECT_EQ(first.phases[1].buffers[i].offset, second.phases[1].buffers[i].offset);
}

}  // namespace
}  // namespace capstan
