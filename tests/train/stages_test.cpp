// A model in stages, and several micro-batches in flight.
#include <gtest/gtest.h>

#include "engine.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

struct Stages {
  Engine engine;
  std::vector<Transformer> parts;

  Stages(Device device, const ModelConfig& config, Precision precision,
         const Recomputation& recompute, const std::optional<LoraOptions>& lora,
         const std::vector<int>& cuts)
      : engine(device, config, precision, recompute, lora) {
    engine.params.initialize(engine.q, 7);
    if (lora) draw_zero_factors(engine.q, engine.params);
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      parts.emplace_back(engine.q, engine.params, recompute, 64, Stage{cuts[i], cuts[i + 1]});
    engine.params.begin_step(engine.q);
  }

  using Kept = std::vector<Transformer::Kept>;
  Kept forward(const Batch& batch, const std::optional<StepKey>& key) {
    Kept kept;
    Buffer x;
    for (Transformer& part : parts) {
      kept.push_back(part.make_kept());
      x = part.forward(engine.q, batch, kept.back(), std::move(x), key);
    }
    return kept;
  }
  void backward(const Batch& batch, Kept& kept) {
    Buffer d;
    for (size_t i = parts.size(); i-- > 0;)
      d = parts[i].backward(engine.q, batch, kept[i], 0.1f, engine.loss, std::move(d));
  }
};

ModelConfig five_layers(bool tied) {
  ModelConfig config = grouped_config();
  config.layers = 5;
  config.tied = tied;
  return config;
}

class InStages : public testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Model, InStages, testing::ValuesIn(devices_present()), device_name);

TEST_P(InStages, GiveTheBitsOfTheWholeModel) {
  LoraOptions lora;
  lora.mlp = lora.key = lora.head = true;
  lora.dropout = 0.1f;
  for (const Precision precision : {Precision::f32_true, Precision::bf16_true})
    for (const Recomputation& recompute : kPolicies)
      for (const bool adapters : {false, true}) {
        const ModelConfig config = five_layers(false);
        const auto with = adapters ? std::optional(lora) : std::nullopt;
        const auto key = adapters ? std::optional(StepKey{.seed = 3}) : std::nullopt;
        PlainBatch b = some_batch(config.vocab);
        const auto run = [&](const std::vector<int>& cuts) {
          Stages s(GetParam(), config, precision, recompute, with, cuts);
          const Batch batch = b.on(s.engine.q, config.sliding_window);
          for (int micro = 0; micro < 2; ++micro) {
            Stages::Kept kept = s.forward(batch, key);
            s.backward(batch, kept);
          }
          return std::pair(s.engine.loss_sum(), s.engine.by_name(true));
        };
        const auto whole = run({0, 5});
        EXPECT_EQ(run({0, 2, 5}), whole) << name_of(precision) << " " << name_of(recompute);
        EXPECT_EQ(run({0, 1, 4, 5}), whole) << name_of(precision) << " " << name_of(recompute);
      }
}

TEST_P(InStages, KeepMicroBatchesApartThatAreInFlight) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = five_layers(tied);
    PlainBatch b = some_batch(config.vocab), c = some_batch(config.vocab);
    std::reverse(c.ids.begin(), c.ids.end());
    const auto run = [&](bool in_flight) {
      Stages s(GetParam(), config, Precision::f32_true, Recompute::selective, {}, {0, 3, 5});
      const Batch first = b.on(s.engine.q, config.sliding_window);
      const Batch second = c.on(s.engine.q, config.sliding_window);
      Stages::Kept a = s.forward(first, {});
      if (!in_flight) s.backward(first, a);
      Stages::Kept other = s.forward(second, {});
      if (in_flight) s.backward(first, a);
      s.backward(second, other);
      return std::pair(s.engine.loss_sum(), s.engine.by_name(true));
    };
    EXPECT_EQ(run(true), run(false)) << tied;
  }
}

TEST_P(InStages, RefuseAnInputThatIsMissingAndBlocksThatAreNotThere) {
  const ModelConfig config = five_layers(false);
  Engine e(GetParam(), config);
  PlainBatch b = some_batch(config.vocab);
  Transformer upper(e.q, e.params, {}, 64, Stage{2, 5});
  Transformer::Kept kept = upper.make_kept();
  EXPECT_NE(message_of(Fault::bug, [&] { upper.forward(e.q, b.on(e.q, 0), kept); }).find("input"),
            std::string::npos);
  for (const Stage stage : {Stage{0, 6}, Stage{3, 3}, Stage{-1, 2}})
    EXPECT_NE(
        message_of(Fault::bug, [&] { Transformer(e.q, e.params, {}, 64, stage); }).find("of 5"),
        std::string::npos);
}

}  // namespace
}  // namespace capstan::test
