// A checkpoint does not tell how many ranks wrote it, nor which of them held what.

#include <omp.h>

#include <filesystem>

#include "base/files.h"
#include "checkpoint/training_checkpoint.h"
#include "comm/thread_group.h"
#include "rank_run.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

// What every file of a folder contains, by name.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
  return files;
}

struct Mesh {
  int ranks = 1;
  const char* name = "ddp";
  Sharding sharding = kDdp;
  int stages = 1, chunks = 1, tensor = 1, context = 1;
};

std::vector<Mesh> meshes() {
  std::vector<Mesh> all = {{}};
  for (const int ranks : {2, 3, 4, 8})
    for (const auto& [name, sharding] : kStrategies) all.push_back({ranks, name, sharding});
  for (const auto& [ranks, replicas] : {std::pair{4, 2}, {6, 3}})
    all.push_back({ranks, "hybrid", hybrid(replicas)});
  for (const auto& [name, sharding] : kStrategies) {
    all.push_back({4, name, sharding, 2});
    all.push_back({6, name, sharding, 3});
  }
  all.push_back({2, "ddp", kDdp, 2, 2});
  all.push_back({5, "ddp", kDdp, 5});
  for (const auto& [name, sharding] : kStrategies) {
    all.push_back({4, name, sharding, 1, 1, 2});
    all.push_back({4, name, sharding, 1, 1, 1, 2});
    all.push_back({8, name, sharding, 2, 1, 2});
  }
  all.push_back({2, "ddp", kDdp, 1, 1, 2});
  all.push_back({4, "ddp", kDdp, 1, 1, 4});  // two ranks have each key head
  all.push_back({8, "zero3", kZero3, 1, 1, 2, 2});
  return all;
}

// Loads `from` on a mesh, or initializes; trains some steps; saves to `to`.
void run(const Case& c, const Mesh& mesh, const fs::path& from, int first, int steps,
         const fs::path& to, bool staged) {
  const Dataset data = ragged(29, c.config.vocab);
  omp_set_num_threads(mesh.ranks);
  run_as_threads(mesh.ranks, [&](Communicator group) {
    TrainOptions o = options_of(c, data, mesh.sharding);
    o.staging = staged;
    o.ranks = group.ranks();
    o.mesh = {.pipeline = mesh.stages, .tensor = mesh.tensor, .context = mesh.context};
    o.pipeline.chunks = mesh.chunks;
    const Ranks share = batch_ranks(group.ranks(), o.mesh);
    o.pipeline.micro_batches =
        (c.global_batch + c.micro_batch * share.size - 1) / (c.micro_batch * share.size);
    const RunPlan plan = Trainer::plan(o);
    Arena arena(plan.device, Device::cpu);
    Queue q(Device::cpu, arena);
    Trainer trainer(q, o, group);
    CheckpointSaver saver(q, trainer.params(), trainer.optimizer(), trainer.snapshot(),
                          group.open_channel("files"));
    if (from.empty()) {
      trainer.params().initialize(q, 3);
    } else {
      if (c.lora) trainer.params().initialize(q, 3);  // the base that the adapters belong to
      load_checkpoint(q, trainer.params(), trainer.optimizer(), from);
    }
    const BatchOptions options{
        .max_seq_length = 32, .vocab = c.config.vocab, .shares = mesh.tensor * mesh.context};
    StepBatches batches(data, c.global_batch, c.micro_batch, 11, options, share);
    for (int step = first; step < first + steps; ++step) trainer.step(batches.of(step), step);
    trainer.params().settle(q);
    SaveRequest request;
    request.dir = to;
    saver.save(std::move(request));
    saver.wait();
  });
}

void expect_any_mesh_saves_the_same(Case c, int most_tensor = 4) {
  const TempFolder temp;
  c.config.layers = 5;
  run(c, {3, "zero2", kZero2}, {}, 0, 2, temp.path() / "first", false);
  const auto expected = contents_of(temp.path() / "first");
  ASSERT_TRUE(expected.contains("training_state/optimizer.safetensors"));
  fs::path last = temp.path() / "first";
  for (const Mesh& mesh : meshes())
    for (const bool staged : {false, true}) {
      if (mesh.tensor > most_tensor) continue;
      SCOPED_TRACE(fmt::format("{} on {} ranks, {} stages, tensor {}, context {}{}", mesh.name,
                               mesh.ranks, mesh.stages, mesh.tensor, mesh.context,
                               staged ? ", staged" : ""));
      const fs::path to = temp.path() / "next";
      run(c, mesh, last, 0, 0, to, staged);
      EXPECT_EQ(contents_of(to) == expected, true);
    }
}

TEST(RankCheckpoint, AnyMeshReadsAndWritesTheSameBytes) {
  expect_any_mesh_saves_the_same({});
}

TEST(RankCheckpoint, WithMastersAndATiedHead) {
  Case c{.precision = Precision::bf16_mixed};
  c.config.tied = true;
  expect_any_mesh_saves_the_same(c);
}

TEST(RankCheckpoint, OfAdapters) {
  Case c;
  c.lora = every_map(0.1);
  expect_any_mesh_saves_the_same(c);
}

TEST(RankCheckpoint, WithMomentumOfSgd) {
  Case c;
  c.optimizer.kind = OptimizerOptions::Kind::sgd;
  c.optimizer.momentum = 0.9;
  expect_any_mesh_saves_the_same(c);
}

TEST(RankCheckpoint, OfEightBitMoments) {
  Case c{.config = aligned_config(), .precision = Precision::bf16_mixed};
  c.config.head_dim = 128;  // two ranks that share a layer have whole blocks of its moments
  c.config.intermediate = 512;
  c.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
  expect_any_mesh_saves_the_same(c, 2);
}

// The same mesh goes on as if it had not stopped; another one does to rounding.
TEST(RankCheckpoint, AResumedRunGoesOn) {
  const TempFolder temp;
  const Case c;
  const Mesh mesh{3, "zero3", kZero3};
  run(c, mesh, {}, 0, 4, temp.path() / "through", false);
  run(c, mesh, {}, 0, 2, temp.path() / "half", true);
  run(c, mesh, temp.path() / "half", 2, 2, temp.path() / "resumed", true);
  EXPECT_EQ(contents_of(temp.path() / "resumed") == contents_of(temp.path() / "through"), true);
}

// A pipeline has the bits of one rank: a run may go on with any number of stages.
TEST(RankCheckpoint, ARunGoesOnWithOtherStages) {
  const TempFolder temp;
  Case c;
  c.config.layers = 5;
  run(c, {}, {}, 0, 4, temp.path() / "through", false);
  run(c, {2, "ddp", kDdp, 2}, {}, 0, 1, temp.path() / "1", true);
  run(c, {}, temp.path() / "1", 1, 1, temp.path() / "2", true);
  run(c, {2, "ddp", kDdp, 2, 2}, temp.path() / "2", 2, 1, temp.path() / "3", true);
  run(c, {5, "ddp", kDdp, 5}, temp.path() / "3", 3, 1, temp.path() / "4", true);
  EXPECT_EQ(contents_of(temp.path() / "4") == contents_of(temp.path() / "through"), true);
}

}  // namespace
}  // namespace capstan::test
