#include "parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "support/message_of.h"

namespace capstan {
namespace {

using Kind = PipelineKind;
using Do = PipelineAction::Do;

// "F0 F1 B0 …", with the chunk after a dot if there are several.
std::string text(const PipelineSchedule& s, bool chunks = false) {
  std::string all;
  for (const PipelineAction& a : s.actions) {
    all += fmt::format("{}{}{}", all.empty() ? "" : " ", "FBW"[a.what], a.micro);
    if (chunks) all += fmt::format(".{}", a.chunk);
  }
  return all;
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  const auto all = pipeline_schedule(Kind::one_f_one_b, {.stages = 4, .micros = 6});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(text(all[0]), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(text(all[1]), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(text(all[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(all[static_cast<size_t>(stage)].slots, 4 - stage);
}

TEST(PipelineSchedule, OfOneStageIsOneRanks) {
  const auto all = pipeline_schedule(Kind::one_f_one_b, {.stages = 1, .micros = 3});
  EXPECT_EQ(text(all[0]), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(all[0].slots, 1);
}

TEST(PipelineSchedule, InterleavedTakesAsManyMicroBatchesThroughAChunkAsThereAreStages) {
  const auto all = pipeline_schedule(Kind::one_f_one_b, {.stages = 2, .chunks = 2, .micros = 4});
  EXPECT_EQ(text(all[0], true),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text(all[1], true),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(PipelineSchedule, ZeroBubbleFillsWaitsWithTheGradientsOfWeights) {
  const auto all = pipeline_schedule(Kind::zero_bubble, {.stages = 3, .micros = 5});
  EXPECT_EQ(text(all[2]), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4");
  for (const PipelineSchedule& one : all) EXPECT_LE(one.slots, 3);
}

// No longer than with as many micro-batches more as make whole groups, and no shorter than without
// any bubble.
TEST(PipelineSchedule, AnyNumberOfMicroBatchesTakesItsPartOfTheTime) {
  for (const int p : {2, 3, 5, 8})
    for (const int v : {1, 2, 3})
      for (int m = 1; m < 3 * p; ++m) {
        const auto seconds = [&](int micros) {
          const PipelineShape shape{.stages = p, .chunks = v, .micros = micros};
          return pipeline_seconds(shape, pipeline_schedule(Kind::one_f_one_b, shape), {});
        };
        EXPECT_LE(seconds(m), seconds((m + p - 1) / p * p)) << p << " " << v << " " << m;
        EXPECT_LE(seconds(m), seconds(m + 1)) << p << " " << v << " " << m;
        EXPECT_GE(seconds(m), 3 * m * v + 3 * (p - 1) * (m < p ? 0 : 1))
            << p << " " << v << " " << m;
      }
}

// (p - 1) / m of the time of the m micro-batches, and of v chunks a v-th of that.
TEST(PipelineSchedule, TheBubbleIsTheFormulas) {
  for (const int p : {1, 2, 3, 4, 7, 8})
    for (const int times : {1, 2, 3, 5})
      for (const int v : {1, 2, 3, 4}) {
        const PipelineShape shape{.stages = p, .chunks = v, .micros = p * times};
        const auto all = pipeline_schedule(Kind::one_f_one_b, shape);
        EXPECT_DOUBLE_EQ(pipeline_seconds(shape, all, {}), 3 * (shape.micros * v + p - 1))
            << p << " " << times << " " << v;
      }
  for (const int p : {1, 2, 3, 4, 7, 8})
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 40}) {
      const PipelineShape shape{.stages = p, .micros = std::max(m, 2 * p)};
      const auto all = pipeline_schedule(Kind::zero_bubble, shape);
      const PipelineCosts thirds{.forward = 1, .backward = 1, .weights = 1};
      // (p - 1) (F + B - W) instead of (p - 1) (F + B + W).
      EXPECT_DOUBLE_EQ(pipeline_seconds(shape, all, thirds), 3 * shape.micros + p - 1)
          << p << " " << m;
      EXPECT_DOUBLE_EQ(pipeline_seconds(shape, pipeline_schedule(Kind::one_f_one_b, shape), {}),
                       3 * (shape.micros + p - 1));
    }
}

TEST(PipelineSchedule, TenThousandShapesNeitherWaitForEverNorExceedTheirSlots) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 10000; ++i) {
    const Kind kind = below(3) == 0 ? Kind::zero_bubble : Kind::one_f_one_b;
    const PipelineShape s{.stages = 1 + below(12),
                          .chunks = kind == Kind::zero_bubble ? 1 : 1 + below(4),
                          .micros = 1 + below(24)};
    const auto all = pipeline_schedule(kind, s);
    ASSERT_NO_THROW(check(kind, s, all)) << s.stages << " " << s.chunks << " " << s.micros;
    for (int stage = 0; stage < s.stages; ++stage) {
      const int below_it = s.stages - stage - 1, items = s.micros * s.chunks;
      const int most = kind == Kind::zero_bubble ? s.stages
                       : s.chunks == 1           ? below_it + 1
                                                 : 2 * below_it + (s.chunks - 1) * s.stages + 1;
      ASSERT_LE(all[static_cast<size_t>(stage)].slots, std::min(most, items))
          << s.stages << " " << s.chunks << " " << s.micros << " stage " << stage;
    }
  }
}

TEST(PipelineSchedule, CheckFindsWhatIsWrong) {
  const PipelineShape shape{.stages = 3, .micros = 4};
  const auto good = pipeline_schedule(Kind::one_f_one_b, shape);
  const auto refused = [&](const auto& spoil) {
    auto all = good;
    spoil(all);
    return message_of(Fault::bug, [&] { check(Kind::one_f_one_b, shape, all); });
  };
  EXPECT_EQ(refused([](auto& all) { all.pop_back(); }), "pipeline: 2 schedules for 3 stages");
  EXPECT_EQ(refused([](auto& all) { all[1].actions.pop_back(); }),
            "pipeline: stage 1 has 7 actions, expected 8");
  EXPECT_EQ(refused([](auto& all) { all[1].actions.back() = all[1].actions.front(); }),
            "pipeline: stage 1, forward pass of micro-batch 0, chunk 0, slot 0: was done before");
  EXPECT_EQ(refused([](auto& all) { all[0].slots = 2; }),
            "pipeline: stage 0, forward pass of micro-batch 2, chunk 0, slot 2: there is no such "
            "slot");
  EXPECT_EQ(refused([](auto& all) { all[0].actions[1].slot = 0; }),
            "pipeline: stage 0, forward pass of micro-batch 1, chunk 0, slot 0: the slot is taken");
  EXPECT_EQ(refused([](auto& all) { all[0].actions[2].micro = 9; }),
            "pipeline: stage 0, forward pass of micro-batch 9, chunk 0, slot 2: there is no such "
            "pass");
  // The last stage wants the second micro-batch first, and the one before has one slot for both.
  EXPECT_EQ(
      refused([](auto& all) {
        all[2].actions = {{Do::forward, 1, 0, 0},  {Do::backward, 1, 0, 0}, {Do::forward, 0, 0, 0},
                          {Do::backward, 0, 0, 0}, {Do::forward, 2, 0, 0},  {Do::backward, 2, 0, 0},
                          {Do::forward, 3, 0, 0},  {Do::backward, 3, 0, 0}};
        all[1].actions = {{Do::forward, 0, 0, 0},  {Do::backward, 0, 0, 0}, {Do::forward, 1, 0, 0},
                          {Do::backward, 1, 0, 0}, {Do::forward, 2, 0, 0},  {Do::backward, 2, 0, 0},
                          {Do::forward, 3, 0, 0},  {Do::backward, 3, 0, 0}};
      }),
      "pipeline: all stages wait; stage 0 for the backward pass of micro-batch 0, chunk 0");
}

double most_of(std::span<const double> blocks, const std::vector<int>& cuts, double before,
               double after) {
  double most = 0;
  for (size_t p = 0; p + 1 < cuts.size(); ++p)
    most = std::max(most,
                    std::accumulate(blocks.begin() + cuts[p], blocks.begin() + cuts[p + 1], 0.0) +
                        (p == 0 ? before : 0) + (p + 2 == cuts.size() ? after : 0));
  return most;
}

TEST(BalancedCuts, TheHeadCounts) {
  const std::vector<double> even(8, 1.0);
  EXPECT_EQ(balanced_cuts(even, 4, 0, 0), (std::vector<int>{0, 2, 4, 6, 8}));
  EXPECT_EQ(balanced_cuts(even, 2, 0, 2), (std::vector<int>{0, 5, 8}));
  EXPECT_EQ(balanced_cuts(even, 8, 9, 9), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(balanced_cuts(even, 1, 1, 1), (std::vector<int>{0, 8}));
  EXPECT_NE(message_of(Fault::bug, [&] { balanced_cuts(even, 9, 0, 0); }).find("cannot be cut"),
            std::string::npos);
}

// Against all ways to cut.
TEST(BalancedCuts, NoneIsBetter) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> blocks(1 + random() % 9);
    for (double& b : blocks) b = static_cast<double>(1 + random() % 5);
    const int n = static_cast<int>(blocks.size()), pieces = 1 + static_cast<int>(random()) % n;
    const double before = static_cast<double>(random() % 3),
                 after = static_cast<double>(random() % 6);
    const std::vector<int> found = balanced_cuts(blocks, std::max(1, pieces), before, after);
    ASSERT_TRUE(std::is_sorted(found.begin(), found.end(), std::less_equal<>()));
    double best = 1e9;
    for (unsigned mask = 0; mask < (1u << (n - 1)); ++mask) {
      if (__builtin_popcount(mask) != std::max(1, pieces) - 1) continue;
      std::vector<int> cuts{0};
      for (int b = 1; b < n; ++b)
        if ((mask >> (b - 1) & 1) != 0) cuts.push_back(b);
      cuts.push_back(n);
      best = std::min(best, most_of(blocks, cuts, before, after));
    }
    EXPECT_DOUBLE_EQ(most_of(blocks, found, before, after), best);
  }
}

}  // namespace
}  // namespace capstan
