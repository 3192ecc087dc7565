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

TEST_P(TrainerOn, EndsWhereAnUpdateIsNotFinite) {
  using Kind = OptimizerOptions::Kind;
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  for (const Kind kind : {Kind::adamw, Kind::adamw8bit, Kind::sgd})
    for (const bool skip : {false, true}) {
      auto o =
          options_for(GetParam(), config, data, Precision::bf16_mixed, Recompute::none, 4, true);
      o.optimizer.kind = kind;
      o.skip_not_finite = skip;
      Planned memory(o);
      Trainer trainer(memory.q, o);
      trainer.params().initialize(memory.q, 3);
      Sampler sampler(data.size(), 4, 11);
      MicroBatches micro(data, 4, {.max_seq_length = 32, .vocab = config.vocab});
      micro.start(sampler.ids(0));
      EXPECT_NO_THROW(trainer.step(micro, 0));
      // In the master alone: loss and gradients of the next step are finite, what it stores is not.
      const Tensor master =
          trainer.params().stored(0).reshape({trainer.params().stored(0).numel()});
      const float infinite = std::numeric_limits<float>::infinity();
      memory.q.upload(master.rows(master.numel() - 1, 1), &infinite);
      micro.start(sampler.ids(1));
      try {
        trainer.step(micro, 1);
        FAIL() << "an infinite weight went through";
      } catch (const NotFiniteUpdate& e) {
        EXPECT_EQ(e.fault(), Fault::usage);
        const std::string text = e.what();
        EXPECT_NE(text.find("step 2: "), std::string::npos) << text;
      }
    }
}

TEST_P(TrainerOn, AStepWithoutALabelLeavesEverythingAsItIs) {
  const ModelConfig config = grouped_config();
  Dataset data;
  for (int s = 0; s < 4; ++s) {
    const bool masked = s % 2 == 1;
    data.add(std::vector<int32_t>(7, s), masked ? 7 : 1);
  }
  for (const int64_t micro_batch : {1, 2}) {
    auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                         micro_batch, micro_batch == 2);
    o.optimizer.weight_decay = 0.5;
    Planned memory(o);
    Queue& q = memory.q;
    Trainer trainer(q, o);
    trainer.params().initialize(q, 3);
    const auto everything = [&] {
      std::vector<Values> all;
      for (int i = 0; i < trainer.params().count(); ++i)
        all.push_back(values_of(q, trainer.params().stored(i)));
      for (const auto& s : trainer.optimizer().state()) all.push_back(values_of(q, s.whole()));
      return all;
    };
    MicroBatches micro(data, micro_batch, {.max_seq_length = 32, .vocab = config.vocab});
    const std::vector<int64_t> some = {0, 2}, none = {1, 3};
    micro.start(some);
    EXPECT_FALSE(trainer.step(micro, 0).masked);
    const auto before = everything();
    micro.start(none);
    const StepResult r = trainer.step(micro, 1);
    EXPECT_TRUE(r.masked);
    EXPECT_EQ(r.tokens - r.padding, 12);
    EXPECT_EQ(everything(), before);
    EXPECT_EQ(trainer.optimizer().steps(), 1);
    micro.start(some);
    trainer.step(micro, 2);
    EXPECT_NE(everything(), before);
  }
}

TEST_P(TrainerOn, SaysWhetherAMicroBatchIsFiniteAndChangesNothing) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  for (const bool single : {false, true}) {
    const auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                               single ? 4 : 2, single);
    Planned memory(o);
    Queue& q = memory.q;
    Trainer trainer(q, o);
    trainer.params().initialize(q, 3);
    const Tensor norm = trainer.params().weight(trainer.params().spec().final_norm);
    const Values before = values_of(q, trainer.params().weight(0));
    Sampler sampler(data.size(), 4, 11);
    MicroBatches micro(data, single ? 4 : 2, {.max_seq_length = 32, .vocab = config.vocab});
    micro.start(sampler.ids(0));
    EXPECT_TRUE(trainer.probe(micro).finite());
    const float good = q.value<float>(norm.rows(0, 1)), nan = NAN;
    q.upload(norm.rows(0, 1), &nan);
    micro.start(sampler.ids(0));
    EXPECT_FALSE(trainer.probe(micro).finite());
    q.upload(norm.rows(0, 1), &good);
    EXPECT_EQ(values_of(q, trainer.params().weight(0)), before);
    micro.start(sampler.ids(0));
    EXPECT_TRUE(std::isfinite(trainer.step(micro, 0).loss));
  }
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
        EXPECT_TRUE(std::isfinite(trainer.probe(micro).loss));
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
