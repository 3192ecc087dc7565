#include "plan/mesh_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/data_sheet.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

// A model of 1.3 B parameters on GPUs of the catalogue.
MeshQuestion question(int devices, int machines, const char* gpu = "a100-40-sxm") {
  const GpuModel model = gpu_catalogue().named(gpu);
  MeshQuestion q;
  q.recipe.global_batch_size = 32;
  q.recipe.num_nodes = machines;
  q.options.device = Device::cuda;
  q.options.model.vocab = 32000;
  q.options.model.hidden = 2048;
  q.options.model.intermediate = 5504;
  q.options.model.layers = 24;
  q.options.model.heads = q.options.model.kv_heads = 16;
  q.options.model.head_dim = 128;
  q.options.precision = Precision::bf16_mixed;
  q.options.limits = {.tokens = 2048, .documents = 1, .longest = 2048};
  q.devices = devices;
  q.machines = machines;
  q.network = data_sheet_network(model, devices);
  q.calibration = data_sheet(model);
  q.available.device = model.bytes;
  return q;
}

double best_seconds(const MeshQuestion& q) {
  const MeshSearch found = search_meshes(q);
  return found.best.empty() ? INFINITY : found.best[0].step.seconds;
}

TEST(MeshSearch, OnOneGpuFindsThePlainRun) {
  const MeshQuestion q = question(1, 1);
  const MeshSearch found = search_meshes(q);
  ASSERT_FALSE(found.best.empty());
  const MeshPlan& best = found.best[0];
  EXPECT_EQ(std::tuple(best.choice.tensor, best.choice.context, best.choice.pipeline),
            std::tuple(1, 1, 1));
  EXPECT_EQ(best.choice.strategy, Strategy::automatic);
  TrainOptions o = q.options;
  o.limits.documents = best.choice.micro_batch_size;
  o.limits.tokens = o.limits.documents * o.limits.longest;
  o.recompute = best.choice.recompute;
  EXPECT_EQ(best.bytes, Trainer::plan(o).device.total_bytes);
  EXPECT_EQ(best.step.seconds, estimate_largest(o, cost_model(q.calibration, o),
                                                q.recipe.global_batch_size / o.limits.documents)
                                   .seconds);
}

// A recipe may have 64 stages.
TEST(MeshSearch, ProposesNoMoreStagesThanARunMayHave) {
  MeshQuestion q = question(1, 72);
  q.options.model.layers = 72;
  q.recipe.global_batch_size = 1;
  const MeshSearch found = search_meshes(q);
  ASSERT_FALSE(found.best.empty());
  for (const MeshPlan& plan : found.best) EXPECT_LE(plan.choice.pipeline, kMostRanks);
}

TEST(MeshSearch, MoreMemoryNeverGivesASlowerBest) {
  MeshQuestion q = question(4, 2);
  double before = INFINITY;
  for (const int64_t gib : {2, 4, 8, 16, 40}) {
    q.available.device = gib << 30;
    const double seconds = best_seconds(q);
    EXPECT_LE(seconds, before) << gib;
    before = seconds;
  }
  EXPECT_LT(before, INFINITY);
}

// With as much memory as the best needs it is found again; with a byte less than anything needs,
// nothing is.
TEST(MeshSearch, FindsAPlanWhereverOneFits) {
  MeshQuestion q = question(4, 1);
  q.options.limits.longest = 512;
  const MeshSearch all = search_meshes(q, 1000);
  ASSERT_GT(all.best.size(), 50U) << "nothing was left out";
  EXPECT_TRUE(std::is_sorted(all.best.begin(), all.best.end(), [](const auto& a, const auto& b) {
    return a.step.seconds < b.step.seconds;
  }));
  const MeshSearch few = search_meshes(q, 3);
  ASSERT_EQ(few.best.size(), 3U);
  EXPECT_LT(few.planned, all.planned);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(few.best[i].step.seconds, all.best[i].step.seconds) << "what is left out is slower";
  int64_t least = INT64_MAX;
  for (const MeshPlan& p : all.best) least = std::min(least, p.bytes);
  q.available.device = least;
  EXPECT_FALSE(search_meshes(q).best.empty());
  q.available.device = 64 << 20;
  const MeshSearch none = search_meshes(q);
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.least_bytes, q.available.device);
}

// What the search leaves out without simulating it takes no less time than the bound says.
TEST(MeshSearch, BoundsHold) {
  for (const int machines : {1, 2}) {
    const MeshQuestion q = question(4, machines);
    for (const MeshPlan& p : search_meshes(q, 1000).best)
      EXPECT_LE(least_seconds(q, p.options, cost_model(q.calibration, p.options)), p.step.seconds)
          << p.choice.tensor << " " << p.choice.pipeline << " " << p.choice.schedule.text() << " "
          << strategy_name(p.options.sharding) << " " << p.choice.micro_batch_size;
  }
}

TEST(MeshSearch, KeepsToWhatTheRanksAndTheModelAllow) {
  MeshQuestion q = question(8, 1);
  q.options.model.heads = q.options.model.kv_heads = 4;
  q.options.model.layers = 3;
  bool shared = false;
  for (const MeshPlan& p : search_meshes(q, 1000).best) {
    EXPECT_LE(p.choice.tensor, 4);
    EXPECT_LE(p.choice.pipeline, 3);
    EXPECT_EQ(p.choice.context, 1) << "sequences are short, and other meshes fit";
    EXPECT_EQ(p.choice.tensor * p.choice.pipeline * p.data_ranks, 8);
    EXPECT_EQ(q.recipe.global_batch_size % (p.data_ranks * p.choice.micro_batch_size), 0);
    shared = shared || p.choice.strategy == Strategy::zero3;
  }
  EXPECT_TRUE(shared);
  q = question(4, 1);
  q.options.limits.longest = 8192;
  const std::vector<MeshPlan> best = search_meshes(q, 1000).best;
  EXPECT_TRUE(std::any_of(best.begin(), best.end(),
                          [](const MeshPlan& p) { return p.choice.context > 1; }));
}

// Over slow links it pays to overlap; if messages take long, whatever their size, more of them do
// not.
TEST(MeshSearch, OverlapsExchangesWhereThatIsFaster) {
  MeshQuestion q = question(4, 1);
  const auto among_tensor = [&](const Network& network) {
    q.network = network;
    int overlapped = 0, all = 0;
    for (const MeshPlan& p : search_meshes(q, 1000).best) {
      if (p.choice.tensor == 1) {
        EXPECT_FALSE(p.choice.overlap);
        continue;
      }
      ++all;
      overlapped += p.choice.overlap ? 1 : 0;
      TrainOptions o = p.options;
      EXPECT_EQ(o.mesh.overlap, p.choice.overlap);
      EXPECT_EQ(overlap_pays(o, cost_model(q.calibration, o), q.available), p.choice.overlap);
    }
    EXPECT_GT(all, 10);
    return std::pair(overlapped, all);
  };
  const auto [slow, all] = among_tensor(data_sheet_network(gpu_catalogue().named("l40s"), 4));
  EXPECT_EQ(slow, all);
  EXPECT_EQ(among_tensor({.seconds_per_message = 0.1, .bytes_per_second = 1e18}).first, 0);
}

TEST(MeshSearch, SaysWhatIsWrongIfNoMeshIsPossible) {
  MeshQuestion q = question(2, 1);
  q.options.model.head_dim = 512;
  const std::string why = message_of(Fault::usage, [&] { search_meshes(q); });
  EXPECT_NE(why.find("512"), std::string::npos) << why;
}

TEST(MeshSearch, IsTheKeysOfARecipe) {
  const MeshQuestion q = question(4, 1);
  const MeshPlan best = search_meshes(q, 1).best.at(0);
  const Recipe r = best.choice.in(q.recipe);
  EXPECT_EQ(r.tensor_parallel, best.choice.tensor);
  EXPECT_EQ(r.micro_batch_size, best.choice.micro_batch_size);
  const auto keys = best.keys();
  EXPECT_EQ(keys.at(0), (std::pair<std::string, std::string>{"tensor_parallel",
                                                             std::to_string(best.choice.tensor)}));
  EXPECT_EQ(keys.size(), 8U);
}

}  // namespace
}  // namespace capstan::test
