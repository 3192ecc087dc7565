// A run that goes on elsewhere says so if that changes its bits, and only then: see
// run/fingerprint.h.

#include <omp.h>

#include "base/files.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "comm/thread_group.h"
#include "run/fingerprint.h"
#include "short_run.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

struct Ways {
  Strategy::Kind strategy;
  int ranks;
  int tensor = 1, context = 1, pipeline = 1;

  std::string name() const {
    return fmt::format("{}x{}{}{}{}", name_of(Strategy(strategy)), ranks,
                       tensor > 1 ? ", tensor" : "", context > 1 ? ", context" : "",
                       pipeline > 1 ? ", stages" : "");
  }
};
constexpr Ways kAlone{Strategy::ddp, 1}, kDdp2{Strategy::ddp, 2}, kDdp3{Strategy::ddp, 3},
    kDdp5{Strategy::ddp, 5}, kZero1x2{Strategy::zero1, 2}, kZero2x2{Strategy::zero2, 2},
    kZero2x3{Strategy::zero2, 3}, kZero3x2{Strategy::zero3, 2}, kZero3x3{Strategy::zero3, 3},
    kZero3x5{Strategy::zero3, 5}, kStages{Strategy::ddp, 2, 1, 1, 2},
    kZero3Stages{Strategy::zero2, 4, 1, 1, 2}, kTensor{Strategy::ddp, 2, 2},
    kContext{Strategy::ddp, 2, 1, 2};

struct Settings {
  Precision precision = Precision::f32_true;
  int64_t batch = 5;    // of micro-batches of one sample
  int64_t tokens = 10;  // of a sample
  bool tied = false;
};

class ResumedBits : public testing::Test {
 protected:
  Recipe recipe(const Settings& s, const Ways& w, const std::string& out) const {
    Recipe r = short_recipe(folder_);
    r.out_dir = folder_ / out.c_str();
    r.accelerator = Accelerator::cpu;
    r.precision = s.precision;
    r.strategy = w.strategy;
    r.tensor_parallel = w.tensor;
    r.context_parallel = w.context;
    r.pipeline_parallel = w.pipeline;
    r.lr = 0.01;
    r.max_steps = 4;
    r.global_batch_size = s.batch;
    r.micro_batch_size = 1;
    r.save_interval = 2;
    r.final_validation = false;
    return r;
  }
  std::string weights(const Recipe& r) const {
    return read_text(fs::path(r.out_dir) / "final/model.safetensors");
  }
  // Returns the warnings.
  std::string train(const Recipe& r, const Settings& s, int ranks) const {
    RunInputs in = short_inputs(0, 0);
    for (int32_t sample = 0; sample < 11; ++sample) {
      std::vector<int32_t> ids(static_cast<size_t>(s.tokens + sample % 3));
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>((i * i + 7 * static_cast<size_t>(sample)) % 31);
      in.data.train.add(ids, 1);
    }
    in.max_seq_length = in.model.config.max_positions = s.tokens + 3;
    in.model.config.tied = s.tied;
    const auto inputs = std::make_shared<const RunInputs>(std::move(in));
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    omp_set_num_threads(ranks);
    run_as_threads(
        ranks,
        [&](Communicator group) {
          const log::Quiet quiet(group.rank() != 0);
          TrainingRun run(r, Task::pretrain, inputs, {}, group);
          run.initialize();
          run.train();
          run.finish();
        },
        std::chrono::seconds(60));
    testing::internal::GetCapturedStdout();
    return testing::internal::GetCapturedStderr();
  }

  // Trains to the end on the ranks of each row's first entry, and from the middle on the others'.
  void expect_warnings_where_bits_differ(
      const Settings& s, const std::vector<std::pair<Ways, std::vector<Ways>>>& table) const {
    for (const auto& [from, others] : table) {
      const Recipe whole = recipe(s, from, from.name());
      train(whole, s, from.ranks);
      for (const Ways& to : others) {
        SCOPED_TRACE(fmt::format("{} {} {}, {} to {}", name_of(s.precision), s.batch,
                                 s.tied ? "tied" : "", from.name(), to.name()));
        Recipe r = recipe(s, to, "resumed");
        r.resume = {Resume::Mode::folder, (fs::path(whole.out_dir) / "step-00000002").string()};
        const std::string told = train(r, s, to.ranks);
        const bool warned = told.find("uninterrupted") != std::string::npos;
        EXPECT_EQ(warned, weights(r) != weights(whole)) << told;
        fs::remove_all(r.out_dir);
      }
      fs::remove_all(whole.out_dir);
    }
  }

  const TempFolder folder_;
};

TEST_F(ResumedBits, OfF32DependOnHowGradientsAreAdded) {
  expect_warnings_where_bits_differ({}, {{kDdp3, {kDdp3, kZero3x3, kZero1x2, kDdp2, kAlone}},
                                         {kZero3x3, {kZero2x2, kZero3x2, kZero2x3, kDdp5, kDdp3}},
                                         {kDdp2, {kZero1x2, kZero2x2, kDdp3}},
                                         {kAlone, {kStages, kDdp2, kTensor, kContext}},
                                         {kZero2x2, {kZero3Stages, kZero3x5}}});
}

// One rank adds what it computes to the gradients of earlier micro-batches: of long ones in parts.
TEST_F(ResumedBits, OfLongMicroBatchesDependOnWhetherTheyAreAddedByThemselves) {
  expect_warnings_where_bits_differ({.batch = 2, .tokens = 1500}, {{kAlone, {kZero3x2, kDdp2}}});
}

TEST_F(ResumedBits, Of16BitsDependOnHowManyAreAddedAtATime) {
  expect_warnings_where_bits_differ({.precision = Precision::bf16_true},
                                    {{kZero3x3, {kZero2x3, kZero2x2, kDdp5}},
                                     {kZero3x5, {kDdp5, kZero3x3}},
                                     {kAlone, {kStages, kDdp2}}});
}

TEST_F(ResumedBits, OfOneMicroBatchDoNotDependOnRanks) {
  expect_warnings_where_bits_differ({.batch = 1}, {{kAlone, {kDdp2, kZero3x3, kStages}}});
}

// The gradients of the head and of the embedding meet in the end.
TEST_F(ResumedBits, OfATiedHeadDependOnStages) {
  expect_warnings_where_bits_differ({.tied = true}, {{kAlone, {kStages, kDdp2}}});
}

// A state that an earlier version has written.
TEST_F(ResumedBits, OfAnOldStateAreJudgedByItsRanks) {
  const Settings s;
  const Recipe whole = recipe(s, kZero3x3, "old");
  train(whole, s, kZero3x3.ranks);
  const fs::path saved = fs::path(whole.out_dir) / "step-00000002";
  TrainingState state = read_state(saved);
  state.order_of_sums.reset();
  omp_set_num_threads(1);
  state.computed_on = what_computes_by_ranks(Device::cpu, 3, {});
  Manifest files = read_manifest(saved);
  files[std::string(kStateFile)] = write_text(saved / kStateFile, state_json(state));
  write_manifest(saved, files);
  for (const auto& [to, warns] : {std::pair{kZero3x3, false}, {kZero2x2, true}}) {
    Recipe r = recipe(s, to, "resumed");
    r.resume = {Resume::Mode::folder, saved.string()};
    EXPECT_EQ(train(r, s, to.ranks).find("uninterrupted") != std::string::npos, warns);
    fs::remove_all(r.out_dir);
  }
}

}  // namespace
}  // namespace capstan::test
