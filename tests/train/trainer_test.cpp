// A trainer where something is not finite, and before it has trained.

#include "planned_run.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(TrainerOn);

TEST_P(TrainerOn, StopsBeforeANanReachesTheWeights) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 4, true);
  Planned memory(o);
  Queue& q = memory.q;
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const Tensor norm = trainer.params().weight(trainer.params().spec().final_norm);
  const float nan = NAN;
  q.upload(norm.rows(0, 1), &nan);
  const Values before = values_of(q, trainer.params().weight(0));
  Sampler sampler(data.size(), 4, 11);
  MicroBatches micro(data, 4, {.max_seq_length = 32, .vocab = config.vocab});
  micro.start(sampler.ids(0));
  try {
    trainer.step(micro, 0);
    FAIL() << "a NaN went through";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the loss is nan"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("sample 0"), std::string::npos) << e.what();
  }
  EXPECT_EQ(values_of(q, trainer.params().weight(0)), before);
}

TEST_P(TrainerOn, AStepThatIsNotFiniteIsLeftOutWhenTheRecipeSaysSo) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 4, true);
  o.skip_not_finite = true;
  Planned memory(o);
  Queue& q = memory.q;
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const Tensor norm = trainer.params().weight(trainer.params().spec().final_norm);
  const float good = q.value<float>(norm.rows(0, 1)), nan = NAN;
  q.upload(norm.rows(0, 1), &nan);
  const Values before = values_of(q, trainer.params().weight(0));
  Sampler sampler(data.size(), 4, 11);
  MicroBatches micro(data, 4, {.max_seq_length = 32, .vocab = config.vocab});
  micro.start(sampler.ids(0));
  EXPECT_TRUE(trainer.step(micro, 0).skipped);
  EXPECT_EQ(values_of(q, trainer.params().weight(0)), before);
  EXPECT_EQ(trainer.optimizer().steps(), 0);
  q.upload(norm.rows(0, 1), &good);
  micro.start(sampler.ids(1));
  EXPECT_FALSE(trainer.step(micro, 1).skipped);
  EXPECT_NE(values_of(q, trainer.params().weight(0)), before);
}

// What is wrong with a batch is told when it is its turn, however early it was looked at.
TEST_P(TrainerOn, ABadSampleOfTheNextStepDoesNotEndThisOne) {
  const ModelConfig config = grouped_config();
  const int64_t first = Sampler(2, 1, 11).ids(0)[0];
  Dataset data;
  for (const int64_t s : {0, 1})
    data.add(std::vector<int32_t>(5, static_cast<int32_t>(s == first ? 1 : config.vocab)), 1);
  const auto o =
      options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 1, true);
  Planned memory(o);
  Trainer trainer(memory.q, o);
  trainer.params().initialize(memory.q, 3);
  StepBatches batches(data, 1, 1, 11, {.max_seq_length = 32, .vocab = config.vocab});
  EXPECT_TRUE(std::isfinite(trainer.step(batches.of(0), 0, &batches).loss));
  EXPECT_EQ(trainer.optimizer().steps(), 1);
  try {
    trainer.step(batches.of(1), 1, &batches);
    FAIL() << "an id outside of the vocabulary went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::file);
  }
  EXPECT_EQ(trainer.optimizer().steps(), 1);
}

// What minute zero does must not change what the run computes.
TEST_P(TrainerOn, ARehearsalLeavesNoTrace) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  for (const int64_t micro_batch : {2, 4}) {
    const auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                               micro_batch, micro_batch == 4);
    std::vector<double> losses[2];
    for (const bool rehearsed : {false, true}) {
      Planned memory(o);
      Queue& q = memory.q;
      Trainer trainer(q, o);
      trainer.params().initialize(q, 3);
      Sampler sampler(data.size(), 4, 11);
      MicroBatches micro(data, micro_batch, {.max_seq_length = 32, .vocab = config.vocab});
      if (rehearsed) {
        micro.start(sampler.ids(0));
        EXPECT_TRUE(std::isfinite(trainer.rehearse_step(micro)));
      }
      for (int step = 0; step < 4; ++step) {
        micro.start(sampler.ids(step));
        losses[rehearsed].push_back(trainer.step(micro, step).loss);
      }
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

}  // namespace
}  // namespace capstan::test
