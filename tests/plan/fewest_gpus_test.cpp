// How many GPUs a run needs, for published models.
#include "plan/fewest_gpus.h"

#include <set>
#include <tuple>

#include "plan/data_sheet.h"
#include "random_verdict.h"

namespace capstan::test {
namespace {

// A published model that is trained in full with samples of 512 tokens, on cards of the catalogue.
struct PublishedRun {
  ModelConfig model;
  GpuModel gpu;

  Recipe recipe(const RandomVerdict::Keys& keys) const {
    RecipeInput input(Task::pretrain, defaults_of(Task::pretrain));
    input.set("accelerator", "cuda");
    input.set("precision", computes_bf16(gpu.capability) ? "bf16-mixed" : "16-mixed");
    input.set("train.max_seq_length", "512");
    input.set("train.global_batch_size", "64");
    input.set("train.micro_batch_size", "4");
    for (const auto& [key, value] : keys) input.set(key, value);
    return input.finish();
  }
  TrainOptions options(const Recipe& r) const {
    TrainOptions o = worst_case_options(r, Task::pretrain, model);
    o.has_bf16 = computes_bf16(gpu.capability);
    o.staging = false;
    return o;
  }
  std::optional<GpuCount> fewest(int most, bool times) const {
    PlannedTask task{.recipe = recipe({}), .options = {}};
    task.options = options(task.recipe);
    return fewest_gpus(task, kUsualGpus, most, [&](int devices, int count) {
      Machines m = machines_with(gpu, devices, count);
      if (!times) m.calibration.reset();
      return m;
    });
  }
  // Whether every rank of the recipe with these keys fits.
  bool fits(const std::string& what) const {
    const Recipe r = recipe(keys_of(what));
    const auto machines = static_cast<int>(r.num_nodes);
    const int ranks = static_cast<int>(r.devices.count) * machines;
    TrainOptions o = options(r);
    set_ranks(o, r, {0, ranks}, {.room = machines > 1}, machines);
    return RandomVerdict::needed(o).device <= gpu.bytes - left_to_cuda();
  }
};

// Names of models, one for each shape.
std::vector<std::string_view> shapes() {
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> known;
  std::vector<std::string_view> names;
  for (const std::string_view name : known_model_names()) {
    const ModelConfig c = *known_model(name);
    if (known.emplace(c.hidden, c.intermediate, c.layers, c.vocab).second) names.push_back(name);
  }
  return names;
}

void expect_enough(std::string_view name, const char* card) {
  const PublishedRun run{*known_model(name), gpu_catalogue().named(card)};
  const auto fewest = run.fewest(4096, false);
  ASSERT_TRUE(fewest) << name << " on " << card;
  EXPECT_TRUE(run.fits(fewest->what)) << name << " on " << card << ": " << fewest->what;
  EXPECT_LE(fewest->plan.bytes, run.gpu.bytes - left_to_cuda());
  EXPECT_EQ(fewest->machines.ranks(), fewest->plan.options.ranks.size);
}

TEST(FewestGpus, AreKnownForEveryPublishedModel) {
  const auto names = shapes();
  ASSERT_GT(names.size(), 20U);
  for (const std::string_view name : names) expect_enough(name, "a100-80-sxm");
}

TEST(FewestGpus, AreKnownForSmallAndLargeCards) {
  for (const auto& [name, card] :
       {std::pair{"Qwen2.5-14B", "t4"}, {"Llama-3.1-70B", "rtx4090"}, {"Llama-3.1-405B", "h200"}})
    expect_enough(name, card);
}

// One fewer machine is too few, whatever the mesh.
TEST(FewestGpus, AreNoMoreThanAreNeeded) {
  const PublishedRun run{*known_model("Llama-3.1-70B"), gpu_catalogue().named("a100-80-sxm")};
  const auto fewest = run.fewest(4096, false);
  ASSERT_TRUE(fewest);
  // Weights, gradients, masters and moments are 18 bytes a parameter.
  const double least = 18.0 * 70.5e9 / static_cast<double>(run.gpu.bytes);
  EXPECT_GE(fewest->machines.ranks(), least);
  EXPECT_LE(fewest->machines.ranks(), least + 2 * kUsualGpus);
  EXPECT_FALSE(run.fewest(fewest->machines.ranks() - 1, false));
}

TEST(FewestGpus, HaveTheFastestMeshWhereTimesAreKnown) {
  const PublishedRun run{*known_model("Llama-3.2-3B"), gpu_catalogue().named("rtx4090")};
  const auto timed = run.fewest(64, true);
  ASSERT_TRUE(timed);
  EXPECT_GT(timed->plan.step.seconds, 0);
  EXPECT_EQ(timed->machines.ranks(), run.fewest(64, false)->machines.ranks());
  EXPECT_TRUE(run.fits(timed->what)) << timed->what;
}

}  // namespace
}  // namespace capstan::test
