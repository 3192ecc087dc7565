#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "comm/simulated.h"
#include "comm/thread_group.h"
#include "ops/elementwise.h"
#include "ops/reference.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

using Way = Pipe::Way;

// Every rank tells its neighbours what it is, both ways, and sends before it receives.
TEST(Meshes, StagesReachTheirNeighbours) {
  for (const auto& [stages, data, ring] : {std::tuple(2, 1, false),
                                           {2, 2, true},
                                           {3, 1, true},
                                           {3, 2, false},
                                           {4, 2, true},
                                           {5, 1, true}}) {
    SCOPED_TRACE(fmt::format("{} stages of {}{}", stages, data, ring ? ", ring" : ""));
    std::mutex mutex;
    run_as_threads(
        stages * data, [&, count = stages, each = data, closed = ring](Communicator all) {
          const Mesh mesh(all, {.pipeline = count, .ring = closed});
          const Pipe& pipe = mesh.pipe();
          Arena arena(Arena::Heap{}, Device::cpu);
          Queue q(Device::cpu, arena);
          const auto value = [&](double x) {
            Buffer b = arena.make(Category::data, DType::f32, {3}, "x");
            fill(q, b, static_cast<float>(x));
            return b;
          };
          const Buffer own = value(all.rank()), one = value(1), down = value(-1), up = value(-1);
          std::vector<Work> works;
          const bool after = closed || !pipe.is_last(), before = closed || !pipe.is_first();
          if (after) works.push_back(pipe.send(q, Way::down, own, 7));
          if (before) works.push_back(pipe.send(q, Way::up, own, 7));
          if (before) works.push_back(pipe.receive(q, Way::down, down, 7));
          if (after) works.push_back(pipe.receive(q, Way::up, up, 7));
          const Buffer sum = arena.make(Category::data, DType::f32, {each}, "x");
          works.push_back(mesh.data().all_gather(q, sum, one->rows(0, 1)));
          for (Work& work : works) work.join(q);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(pipe.stage(), all.rank() / each);
          EXPECT_EQ(mesh.stage_of(all.rank()), pipe.stage());
          EXPECT_EQ(mesh.data_rank_of(all.rank()), mesh.data().rank());
          const int n = count * each;
          EXPECT_EQ(values_of(q, down)[0], before ? (all.rank() + n - each) % n : -1);
          EXPECT_EQ(values_of(q, up)[0], after ? (all.rank() + each) % n : -1);
          EXPECT_EQ(values_of(q, sum), Values(static_cast<size_t>(each), 1));
          EXPECT_EQ(pipe.ends().size(), pipe.is_first() || pipe.is_last() ? 2 : 1);
        });
  }
}

TEST(Meshes, AMessageThatTheOtherStageDoesNotExpectIsNamed) {
  const std::string why = message_of(Fault::peer, [] {
    run_as_threads(2, [](Communicator all) {
      const Mesh mesh(all, {.pipeline = 2});
      Arena arena(Arena::Heap{}, Device::cpu);
      Queue q(Device::cpu, arena);
      const Buffer x = arena.make(Category::data, DType::f32, {3}, "x");
      Work work = all.rank() == 0 ? mesh.pipe().send(q, Way::down, x, 1)
                                  : mesh.pipe().receive(q, Way::down, x, 2);
      work.join(q);
    });
  });
  EXPECT_NE(why.find("group stage 0 to 1, down, collective 0: rank"), std::string::npos) << why;
}

// Neighbours share layers, then sequences; every rank is where the formulas say.
TEST(Meshes, HaveFourAxes) {
  const MeshShape shape{.pipeline = 2, .tensor = 2, .context = 3};
  for (int rank = 0; rank < 24; ++rank) {
    const Ranks all{rank, 24};
    const Mesh mesh(simulated(all, "all"), shape);
    EXPECT_EQ(mesh.tensor().rank(), rank % 2);
    EXPECT_EQ(mesh.context().rank(), rank / 2 % 3);
    EXPECT_EQ(mesh.batches().rank, rank / 6 % 2);
    EXPECT_EQ(mesh.pipe().stage(), rank / 12);
    EXPECT_EQ(mesh.data().size(), 6);
    EXPECT_EQ(mesh.data().rank(), rank % 12 / 2);
    EXPECT_EQ(mesh.stage_of(rank), mesh.pipe().stage());
    EXPECT_EQ(mesh.data_rank_of(rank), mesh.data().rank());
    EXPECT_EQ(mesh.tensor_rank_of(rank), mesh.tensor().rank());
    EXPECT_EQ(mesh.rank_of(mesh.pipe().stage(), mesh.data().rank()), rank);
    EXPECT_EQ(batch_ranks(all, shape).rank, mesh.batches().rank);
    EXPECT_EQ(context_ranks(all, shape).rank, mesh.context().rank());
    EXPECT_EQ(tensor_ranks(all, shape).rank, mesh.tensor().rank());
  }
}

TEST(Meshes, RefuseWhatDoesNotDivideAndAgreeOnTheirDigests) {
  EXPECT_EQ(message_of(Fault::usage,
                       [] {
                         Mesh(simulated({0, 6}, "all"), {.pipeline = 4});
                       }),
            "pipeline_parallel 4 × tensor_parallel 1 × context_parallel 1 does not divide 6 ranks");
  const auto digests = [](int rank) {
    const Mesh mesh(simulated({rank, 4}, "all"), {.pipeline = 2});
    Arena arena;
    Queue q(Device::sim, arena);
    const Buffer x = arena.make(Category::data, DType::f32, {4}, "x");
    Work sum = mesh.data().all_reduce(q, x);
    Work passed =
        rank < 2 ? mesh.pipe().send(q, Way::down, x, 0) : mesh.pipe().receive(q, Way::down, x, 0);
    passed.join(q);
    sum.join(q);
    return mesh.digests();
  };
  std::map<std::string, uint64_t> first;
  for (const auto& [name, digest] : digests(0)) first[name] = digest;
  EXPECT_EQ(first.count("stage 0 to 1, down of data rank 0"), 1u);
  EXPECT_NE(first["stage 0 to 1, down of data rank 0"], 0u);
  for (const auto& [name, digest] : digests(2)) {
    const auto same = first.find(name);
    EXPECT_TRUE(same == first.end() || same->second == digest) << name;
  }
}

}  // namespace
}  // namespace capstan::test
