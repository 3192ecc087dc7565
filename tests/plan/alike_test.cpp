#include "plan/alike.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/small_models.h"
#include "train/trainer.h"

namespace capstan::test {
namespace {

TrainOptions options(const MeshShape& mesh, int ranks, const Sharding& sharding) {
  TrainOptions o;
  o.model = aligned_config();
  o.model.vocab = 301;  // the last share is smaller
  o.model.layers = 11;
  o.model.heads = o.model.kv_heads = 4;
  o.limits = {.tokens = 80, .documents = 2, .longest = 40};
  o.mesh = mesh;
  o.ranks = {0, ranks};
  o.sharding = sharding;
  o.pipeline.micro_batches = 9;
  return o;
}

TEST(RanksThatDiffer, HaveTheOneThatNeedsMostAndTheOneThatNeedsLeast) {
  const struct {
    MeshShape mesh;
    int ranks, chunks;
    Sharding sharding;
  } cases[] = {{{}, 8, 1, kDdp},
               {{}, 8, 1, kZero3},
               {{.tensor = 2}, 8, 1, kZero1},
               {{.tensor = 2, .context = 2}, 8, 1, kZero3},
               {{.pipeline = 5}, 5, 1, kDdp},
               {{.pipeline = 4}, 8, 1, kZero1},
               {{.pipeline = 4}, 4, 2, kDdp},
               {{.pipeline = 5, .tensor = 2}, 20, 2, kZero1}};
  for (const auto& c : cases) {
    TrainOptions o = options(c.mesh, c.ranks, c.sharding);
    o.pipeline.chunks = c.chunks;
    o.recompute = {Recompute::selective, 4};
    std::vector<int64_t> all, some;
    for (o.ranks.rank = 0; o.ranks.rank < o.ranks.size; ++o.ranks.rank)
      all.push_back(Trainer::plan(o).device.total_bytes);
    o.ranks.rank = 0;
    const std::vector<int> ranks = ranks_that_differ(o);
    for (const int rank : ranks) some.push_back(all[static_cast<size_t>(rank)]);
    EXPECT_LE(ranks.size(), all.size());
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    const auto [least_some, most_some] = std::minmax_element(some.begin(), some.end());
    EXPECT_EQ(*most_some, *most) << c.mesh.pipeline << " " << c.mesh.tensor;
    EXPECT_EQ(*least_some, *least) << c.mesh.pipeline << " " << c.mesh.tensor;
  }
}

TEST(StagesAlike, HaveAsManyBlocksAndAreNoEnds) {
  TrainOptions o = options({.pipeline = 6}, 6, kDdp);
  o.pipeline.cuts = {0, 1, 3, 5, 6, 8, 10};
  EXPECT_EQ(stages_alike(o), (std::vector<std::vector<int>>{{0}, {1, 2, 4}, {3}, {5}}));
  o.recompute = {Recompute::block, 3};
  EXPECT_EQ(stages_alike(o), (std::vector<std::vector<int>>{{0}, {1}, {2, 4}, {3}, {5}}));
  o.mesh.pipeline = 1;
  EXPECT_EQ(stages_alike(o), (std::vector<std::vector<int>>{{0}}));
}

TEST(RanksThatDiffer, AreFewOfThousands) {
  TrainOptions o = options({.pipeline = 8, .tensor = 4}, 4096, kZero1);
  EXPECT_LE(ranks_that_differ(o).size(), 128U);
  EXPECT_GT(Trainer::plan(o).device.total_bytes, 0);
}

}  // namespace
}  // namespace capstan::test
