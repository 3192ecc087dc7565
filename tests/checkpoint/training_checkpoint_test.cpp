#include "checkpoint/training_checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

OptimizerOptions sgd(double momentum) {
  return {.kind = OptimizerOptions::Kind::sgd, .momentum = momentum};
}

// Large enough that some of its tensors, and some parts of its parameters, have moments in 8 bits.
ModelConfig with_8bit_moments() {
  ModelConfig c = small("LlamaForCausalLM");
  c.hidden = 64;
  c.intermediate = 70;
  c.head_dim = 16;
  return c;
}
const OptimizerOptions kAdamW8bit{.kind = OptimizerOptions::Kind::adamw8bit};

std::string resume_failure(SmallRun& run, const fs::path& dir) {
  const std::string before = run.bits();
  const std::string message = message_of(
      Fault::file, [&] { load_checkpoint(run.model.queue, run.model.params, run.optimizer, dir); });
  EXPECT_EQ(run.bits() == before, true) << "something was changed";
  return message;
}

TEST(TrainingCheckpoint, ComesBackBitForBitInEveryPrecisionAndWithEveryOptimizer) {
  for (const auto precision : kPrecisions)
    for (const OptimizerOptions& options : {OptimizerOptions(), sgd(0.9), sgd(0)}) {
      QuickFolder folder;
      SmallRun run(precision, options), other(precision, options);
      run.save(folder / "step-000012", 12);
      EXPECT_NO_THROW(verify_checkpoint(folder / "step-000012"));
      other.set(1);
      const TrainingState state = load_checkpoint(other.model.queue, other.model.params,
                                                  other.optimizer, folder / "step-000012");
      EXPECT_EQ(state, SmallRun::state(12));
      EXPECT_EQ(other.optimizer.steps(), 12);
      EXPECT_EQ(other.bits() == run.bits(), true) << name_of(precision);
    }
}

TEST(TrainingCheckpoint, ComesBackBitForBitWithMomentsIn8Bits) {
  const ModelConfig config = with_8bit_moments();
  for (const auto precision : kPrecisions)
    for (const bool staged : {false, true}) {
      QuickFolder folder;
      SmallRun run(precision, kAdamW8bit, {}, Quantize::none, config),
          other(precision, kAdamW8bit, {}, Quantize::none, config);
      Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
      CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer,
                            staged ? &snapshot : nullptr);
      run.set(12);
      saver.save(SmallRun::request(folder / "step-000012", 12));
      saver.wait();
      int64_t bytes = 0;
      for (const char* name : {"model.safetensors", "training_state/optimizer.safetensors"}) {
        const SafetensorsFile file(folder / "step-000012" / name);
        for (const StoredTensor& t : file.tensors()) bytes += t.nbytes();
      }
      EXPECT_EQ(saver.bytes(), bytes);
      EXPECT_NO_THROW(verify_checkpoint(folder / "step-000012"));
      other.set(1);
      load_checkpoint(other.model.queue, other.model.params, other.optimizer,
                      folder / "step-000012");
      EXPECT_EQ(other.optimizer.steps(), 12);
      EXPECT_EQ(other.bits() == run.bits(), true) << name_of(precision) << staged;
    }
}

TEST(TrainingCheckpoint, MomentsIn8BitsHaveTheirScalesBesideThem) {
  QuickFolder folder;
  SmallRun(Precision::bf16_true, kAdamW8bit, {}, Quantize::none, with_8bit_moments())
      .save(folder / "final", 5);
  const SafetensorsFile file(folder / "final" / kOptimizerFile);
  EXPECT_EQ(file.header().metadata.at("optimizer"), "AdamW8bit");
  const auto expect = [&](const std::string& name, std::string_view type,
                          const std::vector<int64_t>& shape) {
    const auto* t = file.find(name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->type.name, type) << name;
    EXPECT_EQ(t->shape, shape) << name;
  };
  const std::string block = "model.layers.1.";
  expect(block + "self_attn.q_proj.weight.exp_avg", "U8", {64, 64});
  expect(block + "self_attn.q_proj.weight.exp_avg.absmax", "F32", {16});
  expect(block + "mlp.up_proj.weight.exp_avg_sq", "U8", {70, 64});
  expect(block + "mlp.up_proj.weight.exp_avg_sq.absmax", "F32", {18});
  expect(block + "self_attn.k_proj.weight.exp_avg", "F32", {32, 64});
  expect("model.norm.weight.exp_avg_sq", "F32", {64});
  EXPECT_EQ(file.find(block + "self_attn.k_proj.weight.exp_avg.absmax"), nullptr);
}

TEST(TrainingCheckpoint, HasMomentsByTheNamesOfTheModelsTensors) {
  QuickFolder folder;
  SmallRun().save(folder / "final", 5);
  const SafetensorsFile file(folder / "final" / "training_state" / "optimizer.safetensors");
  EXPECT_EQ(file.tensors().size(), 2 * (2u * 9 + 3));
  EXPECT_EQ(file.header().metadata.at("steps"), "5");
  EXPECT_EQ(file.header().metadata.at("optimizer"), "AdamW");
  const auto* t = file.find("model.layers.1.self_attn.k_proj.weight.exp_avg_sq");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->shape, (std::vector<int64_t>{12, 24}));
  SmallRun(Precision::f32_true, sgd(0.9)).save(folder / "sgd", 5);
  const SafetensorsFile other(folder / "sgd" / "training_state" / "optimizer.safetensors");
  EXPECT_NE(other.find("model.norm.weight.momentum_buffer"), nullptr);
}

TEST(TrainingCheckpoint, IsStillAModelThatOthersRead) {
  QuickFolder folder;
  SmallRun run;
  run.save(folder / "final", 5);
  EXPECT_EQ(read_config(folder / "final"), run.model.params.spec().config);
  Model model(small("LlamaForCausalLM"));
  load_parameters(model.queue, model.params, folder / "final");
  EXPECT_EQ(model.all(), run.model.all());
}

TEST(TrainingCheckpoint, AnotherPrecisionOrOptimizerIsToldAndChangesNothing) {
  QuickFolder folder;
  SmallRun run, half(Precision::bf16_true), other(Precision::f32_true, sgd(0.9)),
      plain(Precision::f32_true, sgd(0));
  run.save(folder / "adam", 3);
  other.save(folder / "sgd", 3);
  EXPECT_NE(resume_failure(half, folder / "adam")
                .find("was saved in another precision than bf16-true: 21 of another shape or type "
                      "(model.embed_tokens.weight: expected [50, 24] of BF16, found [50, 24] of "
                      "F32, "),
            std::string::npos);
  EXPECT_NE(resume_failure(other, folder / "adam")
                .find("expected the moments of SGD, found those of \"AdamW\"; resume with"),
            std::string::npos);
  EXPECT_NE(resume_failure(plain, folder / "sgd").find("21 unexpected ("), std::string::npos);
  SmallRun few_bits(Precision::f32_true, kAdamW8bit);
  EXPECT_NE(resume_failure(few_bits, folder / "adam")
                .find("expected the moments of AdamW8bit, found those of \"AdamW\""),
            std::string::npos);
}

TEST(TrainingCheckpoint, AModelWithoutAStateCannotBeResumed) {
  QuickFolder folder;
  SmallRun run;
  save_model(run.model.queue, run.model.params, folder / "model");
  const std::string message = resume_failure(run, folder / "model");
  EXPECT_NE(
      message.find("state.json: expected the state of a training run, found none; a run "
                   "cannot resume from this folder, but a new one can start from its weights"),
      std::string::npos)
      << message;
}

TEST(TrainingCheckpoint, WithoutMomentsItIsAModelToUse) {
  QuickFolder folder;
  SmallRun run;
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, nullptr);
  SaveRequest request = SmallRun::request(folder / "final", 3);
  request.moments = false;
  saver.save(request);
  EXPECT_NO_THROW(verify_checkpoint(folder / "final"));
  EXPECT_FALSE(fs::exists(folder / "final" / kOptimizerFile));
  EXPECT_EQ(read_state(folder / "final"), request.state);
  EXPECT_NE(resume_failure(run, folder / "final")
                .find("optimizer.safetensors: expected the moments of the optimizer, found none"),
            std::string::npos);
}

TEST(TrainingCheckpoint, OnSimIsCheckedWithoutMemoryAndSnapshotsAskForTheSame) {
  QuickFolder folder;
  SmallRun().save(folder / "final", 5);
  const auto spec = make_spec(small("LlamaForCausalLM"));
  Arena recording;
  Queue sim(Device::sim, recording);
  Parameters params(recording, spec, Precision::f32_true, Gradients::none);
  Optimizer optimizer(sim, params, {});
  Snapshot snapshot(sim, params, optimizer);
  snapshot.capture(sim);
  EXPECT_EQ(load_checkpoint(sim, params, optimizer, folder / "final").step, 5);

  const MemoryPlan plan = recording.plan();
  Arena arena(plan);
  Queue q(Device::cpu, arena);
  Parameters real(arena, spec, Precision::f32_true, Gradients::none);
  Optimizer real_optimizer(q, real, {});
  Snapshot real_snapshot(q, real, real_optimizer);
  EXPECT_EQ(arena.highest(), plan.highest);
  // The parts of a parameter are staged one by one, each rounded up.
  const int64_t live = at(plan.highest, Category::weights) + at(plan.highest, Category::optimizer);
  const auto parts = static_cast<int64_t>(optimizer.state().size());
  EXPECT_GE(at(plan.highest, Category::staging), live);
  EXPECT_LT(at(plan.highest, Category::staging), live + parts * kBufferAlignment);
}

TEST(CheckpointSaver, WritesWhatWasCapturedWhileTheTrainingGoesOn) {
  QuickFolder folder;
  SmallRun run, other;
  Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, &snapshot);
  for (int64_t step = 1; step <= 20; ++step) {
    run.set(step);
    saver.save(SmallRun::request(folder / "out" / ("step-" + std::to_string(step)), step));
    run.set(step + 1000);
  }
  saver.wait();
  EXPECT_FALSE(saver.busy());
  for (const int64_t step : {1, 10, 20}) {
    const fs::path dir = folder / "out" / ("step-" + std::to_string(step));
    EXPECT_NO_THROW(verify_checkpoint(dir));
    load_checkpoint(other.model.queue, other.model.params, other.optimizer, dir);
    run.set(step);
    EXPECT_EQ(other.bits() == run.bits(), true) << step;
    EXPECT_EQ(other.optimizer.steps(), step);
  }
}

TEST(CheckpointSaver, TellsAnErrorOnceAndGoesOn) {
  QuickFolder folder;
  write_text(folder / "blocked", "a file, not a folder");
  SmallRun run;
  Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, &snapshot);
  saver.save(SmallRun::request(folder / "blocked" / "step-1", 1));
  const std::string message = message_of(Fault::file, [&] { saver.wait(); });
  EXPECT_NE(message.find("blocked"), std::string::npos) << message;
  EXPECT_NO_THROW(saver.wait());
  saver.save(SmallRun::request(folder / "blocked" / "step-2", 2));
  EXPECT_THROW(saver.save(SmallRun::request(folder / "out", 3)), Error) << "the one before failed";
  saver.save(SmallRun::request(folder / "out", 3));
  EXPECT_NO_THROW(saver.wait());
  EXPECT_NO_THROW(verify_checkpoint(folder / "out"));
}

TEST(CheckpointSaver, WarnsOfAnErrorThatNobodyWaitedFor) {
  QuickFolder folder;
  write_text(folder / "blocked", "a file, not a folder");
  SmallRun run;
  Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  testing::internal::CaptureStderr();
  {
    CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, &snapshot);
    saver.save(SmallRun::request(folder / "blocked" / "step-1", 1));
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("blocked"), std::string::npos);
}

TEST(CheckpointSaver, CopiesFilesAndPutsThemInTheManifest) {
  QuickFolder folder;
  SmallRun run;
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, nullptr);
  SaveRequest request = SmallRun::request(folder / "out", 1);
  request.max_shard_bytes = 10'000;
  request.extras = {ExtraFile::text("tokenizer.model", "contents"),
                    ExtraFile::text("generation_config.json", "{\"temperature\": 1}"),
                    ExtraFile::text("logs/notes.txt", "a note")};
  saver.save(request);
  const Manifest files = read_manifest(folder / "out");
  for (const char* name : {"tokenizer.model", "generation_config.json", "logs/notes.txt",
                           "config.json", "model.safetensors.index.json",
                           "training_state/state.json", "training_state/optimizer.safetensors"})
    EXPECT_TRUE(files.contains(name)) << name;
  EXPECT_EQ(files.at("tokenizer.model").sha256, sha256_of("contents"));
  EXPECT_EQ(read_text(folder / "out" / "generation_config.json"), "{\"temperature\": 1}");
  EXPECT_NO_THROW(verify_checkpoint(folder / "out"));
}

TEST(CheckpointSaver, GivesTheFolderItsNameAfterWhatMustComeBeforeIt) {
  QuickFolder folder;
  SmallRun run;
  Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  for (Snapshot* from : {static_cast<Snapshot*>(nullptr), &snapshot}) {
    const fs::path dir = folder / (from == nullptr ? "sync" : "async");
    CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, from);
    SaveRequest request = SmallRun::request(dir, 1);
    bool there = true;
    request.before_name = [&] { there = fs::exists(dir); };
    saver.save(request);
    saver.wait();
    EXPECT_FALSE(there);
    EXPECT_NO_THROW(verify_checkpoint(dir));
    request.dir = folder / "failed";
    request.before_name = [] { fail(Fault::file, "metrics.csv: cannot be written"); };
    EXPECT_EQ(message_of(Fault::file,
                         [&] {
                           saver.save(request);
                           saver.wait();
                         }),
              "metrics.csv: cannot be written");
    EXPECT_FALSE(fs::exists(request.dir));
  }
}

TEST(CheckpointSaver, LeavesTensorsOutPastTheBytesOfATrial) {
  QuickFolder folder;
  SmallRun run;
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, nullptr);
  SaveRequest request;
  request.dir = folder / "trial";
  request.max_bytes = 1;
  saver.save(request);
  EXPECT_NO_THROW(verify_checkpoint(folder / "trial"));
  for (const char* name : {"model.safetensors", "training_state/optimizer.safetensors"})
    EXPECT_EQ(SafetensorsFile(folder / "trial" / name).tensors().size(), 1u) << name;
}

TEST(CheckCanSave, NamesTheFolderAndTheSpaceAndLeavesNothing) {
  QuickFolder folder;
  const fs::path dir = folder / "out" / "step-1";
  EXPECT_NO_THROW(check_can_save(dir, 1000));
  EXPECT_TRUE(fs::is_empty(folder / "out"));
  const std::string message =
      message_of(Fault::file, [&] { check_can_save(dir, int64_t{1} << 59, 2); });
  EXPECT_NE(message.find("out: needs 1024 PiB, but "), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(folder / "out"));
  write_text(folder / "out" / "file", "");
  EXPECT_NE(message_of(Fault::file, [&] { check_can_save(folder / "out" / "file" / "x", 1); })
                .find("file/x: cannot create the folder"),
            std::string::npos);
  fs::create_directory(folder / "out" / "thesis");
  write_text(folder / "out" / "thesis" / "a.tex", "");
  EXPECT_NE(message_of(Fault::file, [&] { check_can_save(folder / "out" / "thesis", 1); })
                .find("choose another folder"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
