// What of a run is in host memory beside a GPU: micro-batches on their way to it, the state of a
// paged optimizer, and the copy that checkpoints are written from.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "plan/fit.h"
#include "short_run.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;
using Kind = OptimizerOptions::Kind;

// Its matrices have moments in 8 bits where that is asked for.
ModelConfig small_model() {
  ModelConfig c;
  c.vocab = 31;
  c.hidden = 64;
  c.intermediate = 96;
  c.layers = 2;
  c.heads = c.kv_heads = 2;
  c.head_dim = 32;
  return c;
}

TrainOptions options(Kind kind, bool paged, Device device = Device::cuda) {
  TrainOptions o;
  o.device = device;
  o.model = small_model();
  o.limits = {.tokens = 200, .documents = 4, .longest = 64};
  o.single_micro_batch = true;
  o.optimizer.kind = kind;
  o.optimizer.paged = paged;
  return o;
}

int64_t rounded(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// The gradients' norm and the factor that clips them are the device's whatever the optimizer.
constexpr int64_t kClip = 2 * kBufferAlignment;

// Two micro-batches of the limits' size: ids, labels and positions of tokens, starts of documents.
const int64_t kBatches = 2 * (3 * rounded(4 * 200) + rounded(4 * 5));

TEST(HostPlan, OfAPagedOptimizerHasItsMomentsAndTheGpusHasAllElse) {
  for (const Kind kind : {Kind::adamw, Kind::adamw8bit}) {
    SCOPED_TRACE(name_of(kind));
    const RunPlan usual = Trainer::plan(options(kind, false));
    const RunPlan paged = Trainer::plan(options(kind, true));
    ByCategory on_host{};
    at(on_host, Category::data) = kBatches;
    EXPECT_EQ(usual.host.total_bytes, kBatches);
    EXPECT_EQ(usual.host.highest, on_host);
    const int64_t moments = at(usual.device.highest, Category::optimizer) - kClip;
    EXPECT_EQ(paged.host.total_bytes, kBatches + moments);
    at(on_host, Category::optimizer) = moments;
    EXPECT_EQ(paged.host.highest, on_host);
    EXPECT_EQ(paged.device.total_bytes, usual.device.total_bytes - moments);
    ByCategory rest = usual.device.highest;
    at(rest, Category::optimizer) = kClip;
    EXPECT_EQ(paged.device.highest, rest);
  }
}

// From the parameters' shapes alone.
TEST(HostPlan, OfPagedAdamWIsTwoF32MomentsOfEveryParameter) {
  int64_t bytes = 0;
  for (const Param& p : make_spec(small_model()).params) bytes += 2 * rounded(4 * p.shape.numel());
  EXPECT_EQ(Trainer::plan(options(Kind::adamw, true)).host.total_bytes, kBatches + bytes);
}

// The next one has a place there, too, beside the one that is trained.
TEST(HostPlan, OfAGpuHasTwoMicroBatchesOnTheHostAndOneMoreOnTheDevice) {
  const RunPlan gpu = Trainer::plan(options(Kind::sgd, false)),
                cpu = Trainer::plan(options(Kind::sgd, false, Device::cpu));
  EXPECT_EQ(gpu.host.total_bytes, kBatches);
  EXPECT_EQ(at(gpu.device.highest, Category::data),
            at(cpu.device.highest, Category::data) + kBatches / 2);
  EXPECT_EQ(cpu.host.total_bytes, 0);
}

TEST(HostPlan, ACopyToSaveFromTakesNothingOfTheGpu) {
  for (const bool paged : {false, true}) {
    TrainOptions o = options(Kind::adamw, paged);
    const RunPlan bare = Trainer::plan(o);
    o.staging = true;
    const RunPlan staged = Trainer::plan(o);
    EXPECT_EQ(staged.device.highest, bare.device.highest);
    EXPECT_EQ(staged.device.total_bytes, bare.device.total_bytes);
    const int64_t copy = at(staged.host.highest, Category::staging);
    EXPECT_EQ(staged.host.total_bytes, bare.host.total_bytes + copy);
    const int64_t state = 3 * 4 * make_spec(o.model).parameter_count();  // weights, two moments
    EXPECT_GE(copy, state);
    // Each tensor of the checkpoint is rounded up.
    EXPECT_LT(copy, state + 100 * kBufferAlignment);
  }
}

TEST(HostPlan, OfACpuIsEmptyAndPagedChangesNothing) {
  TrainOptions o = options(Kind::adamw, false, Device::cpu);
  o.staging = true;
  const RunPlan usual = Trainer::plan(o);
  o.optimizer.paged = true;
  const RunPlan paged = Trainer::plan(o);
  EXPECT_EQ(usual.host.total_bytes, 0);
  EXPECT_EQ(paged.host.total_bytes, 0);
  EXPECT_EQ(paged.device.total_bytes, usual.device.total_bytes);
  EXPECT_EQ(paged.device.highest, usual.device.highest);
  EXPECT_GT(at(usual.device.highest, Category::staging), 0);
}

bool names(const Fit& fit, const char* change) {
  const std::vector<std::string> all = fit.names_of_changes();
  return std::find(all.begin(), all.end(), change) != all.end();
}

TEST(HostFit, EachSpaceIsHeldAgainstItsOwnRoom) {
  const TrainOptions o = options(Kind::adamw, true);
  const RunPlan plan = Trainer::plan(o);
  const int64_t device = plan.device.total_bytes, host = plan.host.total_bytes;
  EXPECT_EQ(fit_of(o, 4, {device, host}).verdict().rfind("fits: needs ", 0), 0U);
  EXPECT_NE(fit_of(o, 4, {device, host}).verdict().find(" on the GPU and "), std::string::npos);
  EXPECT_NE(fit_of(o, 4, {device, host}).verdict().find(" of host memory"), std::string::npos);
  const auto refusal = [&](const Room& room) {
    return message_of(Fault::does_not_fit, [&] { require_fit(fit_of(o, 4, room)); });
  };
  const std::string short_of_gpu = refusal({device - 1, host}),
                    short_of_host = refusal({device, host - 1}),
                    short_of_both = refusal({device - 1, host - 1});
  EXPECT_NE(short_of_gpu.find(" on the GPU, "), std::string::npos) << short_of_gpu;
  EXPECT_EQ(short_of_gpu.find("host memory"), std::string::npos) << short_of_gpu;
  EXPECT_NE(short_of_host.find(" of host memory, "), std::string::npos) << short_of_host;
  EXPECT_EQ(short_of_host.find("on the GPU"), std::string::npos) << short_of_host;
  EXPECT_NE(short_of_both.find(" free, and "), std::string::npos) << short_of_both;
}

// Nobody says how much host memory the machine with the GPU has: it is not held against it.
TEST(HostFit, HostMemoryThatIsNotKnownIsEnough) {
  const TrainOptions o = options(Kind::adamw, true);
  const Fit fit = fit_of(o, 4, {Trainer::plan(o).device.total_bytes});
  EXPECT_TRUE(fit.fits());
  EXPECT_NE(fit.verdict().find(" KiB of host memory"), std::string::npos) << fit.verdict();
}

// Whatever is named fits, and paging is named where it does.
TEST(HostFit, ProposesToPageTheStateForAGpuThatIsTooSmall) {
  const TrainOptions o = options(Kind::adamw, false);
  const RunPlan paged = Trainer::plan(options(Kind::adamw, true)),
                few = Trainer::plan(options(Kind::adamw8bit, true));
  const int64_t device = paged.device.total_bytes, host = paged.host.total_bytes;
  const Fit both = fit_of(o, 4, {device, host});
  EXPECT_FALSE(both.fits());
  EXPECT_TRUE(names(both, "optimizer: PagedAdamW")) << both.verdict();
  EXPECT_TRUE(names(both, "optimizer: PagedAdamW8bit")) << both.verdict();
  const Fit eight = fit_of(o, 4, {few.device.total_bytes, few.host.total_bytes});
  EXPECT_FALSE(names(eight, "optimizer: PagedAdamW")) << eight.verdict();
  EXPECT_TRUE(names(eight, "optimizer: PagedAdamW8bit")) << eight.verdict();
  const TrainOptions on_cpu = options(Kind::adamw, false, Device::cpu);
  const Fit cpu = fit_of(on_cpu, 4, {Trainer::plan(on_cpu).device.total_bytes - 1});
  for (const std::string& change : cpu.names_of_changes())
    EXPECT_EQ(change.find("Paged"), std::string::npos) << change;
}

TEST(HostFit, ProposesTheGpusMemoryWhereTheHostHasTooLittle) {
  const TrainOptions o = options(Kind::adamw, true);
  const int64_t all = Trainer::plan(options(Kind::adamw, false)).device.total_bytes;
  const Fit fit = fit_of(o, 4, {all, kBatches});
  EXPECT_TRUE(names(fit, "optimizer: AdamW")) << fit.verdict();
  EXPECT_FALSE(names(fit, "activations: block")) << fit.verdict();
  EXPECT_FALSE(names(fit, "optimizer: PagedAdamW8bit")) << fit.verdict();
}

TEST(HostFit, ACopyToSaveFromIsTheFirstToGo) {
  TrainOptions o = options(Kind::adamw, true);
  const RunPlan bare = Trainer::plan(o);
  o.staging = true;
  const RunPlan staged = Trainer::plan(o);
  const int64_t device = bare.device.total_bytes;
  EXPECT_EQ(fit_of(o, 4, {device, staged.host.total_bytes}).dropped_staging, 0);
  const Fit fit = fit_of(o, 4, {device, staged.host.total_bytes - 1});
  EXPECT_TRUE(fit.fits());
  EXPECT_FALSE(fit.options.staging);
  EXPECT_EQ(fit.dropped_staging, staged.host.total_bytes - bare.host.total_bytes);
  EXPECT_EQ(fit.plan.host.total_bytes, bare.host.total_bytes);
  EXPECT_NE(fit.verdict().find(" more of host memory it could save"), std::string::npos)
      << fit.verdict();
}

// Runs on a GPU, for the machines that have one.
class RunsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string_view why;
    if (!cuda_present(&why)) GTEST_SKIP() << why;
    quiet_.emplace();
  }
  void TearDown() override { quiet_.reset(); }

  static RunInputs inputs() {
    RunInputs in = short_inputs(13, 3);
    in.model.config = small_model();
    return in;
  }

  Recipe recipe(const std::string& optimizer, const std::string& out) const {
    Recipe r = short_recipe(folder_);
    r.accelerator = Accelerator::cuda;
    r.out_dir = (folder_.path() / out).string();
    r.max_steps = 7;
    r.save_interval = 2;
    r.optimizer = value_named<OptimizerClass>(optimizer).value();
    r.resume.mode = Resume::Mode::newest_if_any;
    return r;
  }

  // Stops after step `stop`, if it is told, and is begun anew from its state.
  RunSummary train(const Recipe& r, int64_t stop = 0) const {
    if (stop > 0) {
      TrainingRun run(r, Task::pretrain, inputs());
      run.initialize();
      run.verify();
      run.stop_after(stop);
      run.train();
    }
    TrainingRun run(r, Task::pretrain, inputs());
    run.initialize();
    run.verify();
    run.train();
    run.finish();
    return run.summary();
  }

  // The tensors of a checkpoint, weights and moments, bit for bit.
  std::string tensors(const std::string& checkpoint) const {
    const fs::path dir = folder_.path() / checkpoint;
    const fs::path moments = dir / kOptimizerFile;
    return read_text(dir / "model.safetensors") + (fs::exists(moments) ? read_text(moments) : "");
  }

  TempFolder folder_;
  std::optional<Quiet> quiet_;
};

void expect_as_planned(const MemoryUse& use) {
  EXPECT_EQ(use.measured_bytes, use.planned_bytes);
  EXPECT_EQ(use.measured, use.planned);
}

TEST_F(RunsOnGpu, APagedRunHasTheBitsOfAnUnpagedOneStoppedOrNot) {
  for (const char* precision : {"32-true", "bf16-true", "bf16-mixed"})
    for (const std::string optimizer : {"AdamW", "AdamW8bit"}) {
      SCOPED_TRACE(optimizer + " in " + precision);
      const std::string name = optimizer + precision;
      Recipe usual = recipe(optimizer, name), paged = recipe("Paged" + optimizer, name + "-paged"),
             resumed = recipe("Paged" + optimizer, name + "-resumed");
      usual.precision = paged.precision = resumed.precision = value_named<Precision>(precision);
      const RunSummary at_once = train(usual), over_the_bus = train(paged);
      train(resumed, 3);
      for (const char* checkpoint : {"/step-00000002", "/step-00000006", "/final"})
        EXPECT_TRUE(tensors(name + checkpoint) == tensors(name + "-paged" + checkpoint))
            << checkpoint;
      for (const char* checkpoint : {"/step-00000006", "/final"})
        EXPECT_TRUE(tensors(name + checkpoint) == tensors(name + "-resumed" + checkpoint))
            << checkpoint;
      for (const RunSummary* s : {&at_once, &over_the_bus}) {
        expect_as_planned(s->memory);
        expect_as_planned(s->host_memory);
      }
      EXPECT_EQ(at(at_once.host_memory.measured, Category::optimizer), 0);
      EXPECT_EQ(at(over_the_bus.host_memory.measured, Category::optimizer),
                at(at_once.memory.measured, Category::optimizer) - kClip);
    }
}

// Masters and moments in host memory change where values are, and nothing else.
TEST_F(RunsOnGpu, AnOffloadedRunHasTheBitsOfAnotherStoppedOrNot) {
  for (const std::string optimizer : {"AdamW", "AdamW8bit"}) {
    SCOPED_TRACE(optimizer);
    Recipe usual = recipe(optimizer, optimizer), offloaded = recipe(optimizer, optimizer + "-host"),
           resumed = recipe(optimizer, optimizer + "-resumed");
    for (Recipe* r : {&usual, &offloaded, &resumed}) r->precision = Precision::bf16_mixed;
    offloaded.strategy = resumed.strategy = {Strategy::automatic, true};
    const RunSummary on_gpu = train(usual), on_host = train(offloaded);
    train(resumed, 3);
    for (const char* name : {"-host/final", "-host/step-00000002", "-resumed/final"})
      EXPECT_TRUE(tensors(optimizer + name) ==
                  tensors(optimizer + std::string(name).substr(std::string(name).find('/'))))
          << name;
    expect_as_planned(on_host.memory);
    expect_as_planned(on_host.host_memory);
    // A bf16 weight remains on the GPU, of 2 + 4 bytes.
    const int64_t weights = at(on_gpu.memory.measured, Category::weights);
    EXPECT_NEAR(static_cast<double>(at(on_host.host_memory.measured, Category::weights)),
                static_cast<double>(weights) * 2 / 3, static_cast<double>(weights) * 0.01);
    EXPECT_EQ(at(on_host.host_memory.measured, Category::weights) +
                  at(on_host.memory.measured, Category::weights),
              weights);
    EXPECT_EQ(at(on_host.host_memory.measured, Category::optimizer),
              at(on_gpu.memory.measured, Category::optimizer) - kClip);
  }
}

TEST_F(RunsOnGpu, ACheckpointWrittenBesideTheTrainingHasTheBitsOfOneThatWasWaitedFor) {
  for (const std::string optimizer : {"AdamW", "PagedAdamW", "PagedAdamW8bit"}) {
    SCOPED_TRACE(optimizer);
    const Recipe beside = recipe(optimizer, optimizer + "-beside");
    Recipe waited = recipe(optimizer, optimizer + "-waited");
    waited.save_async = false;
    EXPECT_GT(at(train(beside).host_memory.measured, Category::staging), 0);
    EXPECT_EQ(at(train(waited).host_memory.measured, Category::staging), 0);
    for (const char* step : {"/step-00000002", "/step-00000004", "/step-00000006", "/final"})
      EXPECT_TRUE(tensors(optimizer + "-beside" + step) == tensors(optimizer + "-waited" + step))
          << step;
  }
}

TEST_F(RunsOnGpu, PinsMicroBatchesAndNothingElseUnlessItIsAskedFor) {
  Recipe r = recipe("AdamW", "out");
  r.save_async = false;
  const RunSummary s = train(r);
  expect_as_planned(s.memory);
  expect_as_planned(s.host_memory);
  EXPECT_GT(s.host_memory.measured_bytes, 0);
  EXPECT_EQ(at(s.host_memory.measured, Category::data), s.host_memory.measured_bytes);
}

// Validations and samples between the steps take the place of what was copied ahead; a run that is
// stopped leaves it behind.
TEST_F(RunsOnGpu, ARunThatIsStoppedAndGoesOnHasTheBitsOfOneThatValidatesBetween) {
  for (const int64_t micro_batch : {1, 4}) {
    const std::string name = "micro" + std::to_string(micro_batch);
    Recipe whole = recipe("AdamW", name), validated = recipe("AdamW", name + "-validated"),
           stopped = recipe("AdamW", name + "-stopped");
    for (Recipe* r : {&whole, &validated, &stopped}) {
      r->micro_batch_size = micro_batch;
      r->eval_interval = 1000;
    }
    validated.eval_interval = 1;
    const RunSummary s = train(whole);
    EXPECT_EQ(train(validated).tokens_with_padding, s.tokens_with_padding);
    EXPECT_EQ(train(stopped, 3).tokens_with_padding, s.tokens_with_padding);
    for (const char* other : {"-validated", "-stopped"})
      EXPECT_TRUE(tensors(name + "/final") == tensors(name + other + "/final")) << other;
  }
}

}  // namespace
}  // namespace capstan::test
