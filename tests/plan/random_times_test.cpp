// The predicted steps of random recipes are in a sane order: more work takes longer, and no step is
// slower on a faster machine.
#include "plan/data_sheet.h"
#include "plan/predict.h"
#include "random_run.h"

namespace capstan::test {
namespace {

// Padding is a document, too, whose attention may take longer than that of the samples in its
// place; and stages take the mean of their passes, which wait for different collectives.
constexpr double kSlack = 1.001;

double seconds(TrainOptions o, const GpuModel& gpu, const GpuModel& links) {
  o.device = Device::cuda;
  o.network = data_sheet_network(links, 4);
  return estimate_largest(o, cost_model(data_sheet(gpu), o), o.pipeline.micro_batches).seconds;
}

TEST(RandomTimes, AreLongerForMoreWorkAndNeverOnFasterMachines) {
  const GpuModel slow = gpu_catalogue().named("h100-sxm"), fast = gpu_catalogue().named("b200");
  GpuModel slow_links = slow;
  slow_links.link_bytes_per_second /= 8;
  const int possible =
      for_each_plan(60'000, 700, [&](RandomRun& run, const TrainOptions& o, const MemoryPlan&) {
        const double base = seconds(o, slow, slow);
        EXPECT_LE(seconds(o, fast, slow), base * kSlack) << run.text();
        EXPECT_GE(seconds(o, slow, slow_links) * kSlack, base) << run.text();
        const auto with = [&](const char* what, const auto& change) {
          TrainOptions more = o;
          change(more);
          EXPECT_GE(seconds(more, slow, slow) * kSlack, base) << what << ": " << run.text();
        };
        with("a sample more", [](auto& m) {
          ++m.limits.documents;
          m.limits.tokens += m.limits.longest;
        });
        with("longer samples", [](auto& m) {
          m.limits.longest += 16;
          m.limits.tokens += 16 * m.limits.documents;
        });
        if (!o.single_micro_batch)
          with("more micro-batches", [](auto& m) { ++m.pipeline.micro_batches; });
        if (o.mesh.pipeline > 1) return;
        with("a layer more", [](auto& m) {
          ++m.model.layers;
          m.pipeline.cuts.clear();
        });
        if (o.recompute.policy == Recompute::none)
          with("recomputation", [](auto& m) { m.recompute = Recompute::block; });
      });
  EXPECT_GT(possible, 350);
}

}  // namespace
}  // namespace capstan::test
