// The stages of a pipeline train as one rank does: see train/pipeline.h.

#include "train/pipeline.h"

#include "rank_run.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

Case five_layers() {
  Case c;
  c.config.layers = 5;
  return c;
}

struct Shape {
  int stages;
  PipelineOptions options;
};
constexpr auto kZeroBubble = PipelineKind::zero_bubble;
const Shape kShapes[] = {{2, {}},
                         {3, {}},
                         {5, {}},
                         {2, {.chunks = 2}},
                         {2, {.kind = kZeroBubble}},
                         {4, {.kind = kZeroBubble}}};
std::string described(const Shape& shape) {
  return fmt::format("{} stages of {}{}", shape.stages, shape.options.chunks,
                     shape.options.kind == kZeroBubble ? ", zero bubble" : "");
}

TEST(Pipelines, AreBitwiseOneRank) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    for (const Recompute recompute : {Recompute::none, Recompute::block})
      for (const bool lora : {false, true}) {
        Case c = five_layers();
        c.precision = precision;
        c.recompute = recompute;
        if (lora) c.lora = every_map(0.1);
        for (const int64_t micro : {1, 2, 5, 13}) {
          c.micro_batch = micro;
          c.mesh = {};
          const Trained expected = train(c, 1);
          for (const Shape& shape : kShapes) {
            c.mesh.pipeline = shape.stages;
            c.pipeline = shape.options;
            SCOPED_TRACE(fmt::format("{}, {}, {}, micro-batches of {}{}", described(shape),
                                     name_of(precision), name_of(Recomputation(recompute)), micro,
                                     lora ? ", LoRA" : ""));
            EXPECT_EQ(train(c, shape.stages), expected);
          }
        }
      }
}

TEST(Pipelines, WithATiedHeadAndEveryFeature) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
    for (const bool lora : {false, true}) {
      Case c;
      c.config = all_features();
      c.config.layers = 5;
      c.precision = precision;
      c.optimizer = plain_sgd();
      if (lora) c.lora = every_map(0.1);
      ASSERT_TRUE(c.config.tied);
      const Trained expected = train(c, 1);
      for (const Shape& shape : kShapes) {
        c.mesh.pipeline = shape.stages;
        c.pipeline = shape.options;
        SCOPED_TRACE(described(shape));
        expect_near(train(c, shape.stages), expected,
                    precision == Precision::f32_true ? 1e-5 : 2e-2);
      }
    }
}

// Ranks that share the data in every stage, with every strategy; some have no last micro-batch.
TEST(Pipelines, TimesRanksThatShareTheData) {
  for (const bool lora : {false, true})
    for (const bool tied : {false, true})
      for (const int64_t micro : {2, 5}) {
        Case c = five_layers();
        c.config.tied = tied;
        c.micro_batch = micro;
        c.optimizer = plain_sgd();
        if (lora) c.lora = every_map(0.1);
        const Trained expected = train(c, 1);
        for (const auto& [stages, data] : {std::pair{2, 2}, {2, 3}, {3, 2}, {2, 4}})
          for (const auto& [name, sharding] : kStrategies)
            for (const int chunks : {1, 2}) {
              if (stages * chunks > 5) continue;
              c.mesh.pipeline = stages;
              c.pipeline.chunks = chunks;
              SCOPED_TRACE(fmt::format("{} stages of {}, {} on {}, micro-batches of {}{}{}", stages,
                                       chunks, name, data, micro, lora ? ", LoRA" : "",
                                       tied ? ", tied" : ""));
              expect_near(train(c, stages * data, sharding), expected, 1e-5);
            }
      }
}

TEST(Pipelines, OfAQuantizedModel) {
  const TempFolder temp;
  Case c = five_layers();
  save_base(c.config, temp / "base");
  c.base = temp / "base";
  c.lora = every_map(0.1);
  c.quantize = Quantize::nf4;
  const Trained expected = train(c, 1);
  for (const Shape& shape : kShapes) {
    c.mesh.pipeline = shape.stages;
    c.pipeline = shape.options;
    EXPECT_EQ(train(c, shape.stages), expected) << described(shape);
  }
  c.mesh.pipeline = 2;
  c.pipeline = {};
  expect_near(train(c, 4, kZero3), expected, 1e-5);
}

// Stages below the first trained block have no backward pass, and get no gradients.
TEST(Pipelines, StagesThatTrainNothing) {
  Case c = five_layers();
  c.lora = LoraOptions{.dropout = 0.1, .query = false, .value = false, .head = true};
  const Trained expected = train(c, 1);
  for (const Shape& shape : kShapes) {
    c.mesh.pipeline = shape.stages;
    c.pipeline = shape.options;
    EXPECT_EQ(train(c, shape.stages), expected) << described(shape);
  }
}

// What a stage asks for is what was planned, in every category, when all of its batches are of the
// largest size.
TEST(Pipelines, StagesAllocateWhatIsPlanned) {
  for (const Shape& shape : kShapes)
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      Case c = five_layers();
      c.recompute = recompute;
      c.mesh.pipeline = shape.stages;
      c.pipeline = shape.options;
      const Dataset data = even(26, c.config.vocab);
      std::mutex mutex;
      run_as_threads(shape.stages, [&](Communicator group) {
        TrainOptions o = options_of(c, data, kDdp);
        o.ranks = group.ranks();
        o.pipeline.micro_batches = 7;
        const RunPlan plan = Trainer::plan(o);
        Arena arena(plan.device, Device::cpu);
        Queue q(Device::cpu, arena);
        Trainer trainer(q, o, group);
        trainer.params().initialize(q, 3);
        const BatchOptions options{.max_seq_length = 32, .vocab = c.config.vocab};
        StepBatches batches(data, 14, 2, 11, options);
        trainer.step(batches.of(0), 0);
        Sampler in_order(data.size(), data.size(), 0, false);
        MicroBatches held(data, 2, options);
        held.start(in_order.ids(0));
        trainer.evaluate(held);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(arena.highest(), plan.device.highest)
            << described(shape) << ' ' << group.rank() << name_of(Recomputation(recompute));
        EXPECT_EQ(arena.allocated_bytes(), plan.device.total_bytes);
      });
    }
}

TEST(Pipelines, ZeroBubbleOfRanksThatShareTheData) {
  for (const int64_t micro : {2, 5}) {
    Case c = five_layers();
    c.micro_batch = micro;
    c.optimizer = plain_sgd();
    const Trained expected = train(c, 1);
    c.mesh.pipeline = 2;
    c.pipeline.kind = kZeroBubble;
    for (const Sharding& sharding : {kDdp, kZero1}) {
      expect_near(train(c, 4, sharding), expected, 1e-5);
      expect_near(train(c, 6, sharding), expected, 1e-5);
    }
    EXPECT_EQ(message_of(Fault::usage, [&] { train(c, 4, kZero2); }),
              "pipeline_schedule: zero_bubble keeps the gradients of a stage whole, but strategy "
              "zero2 shards them; use ddp or zero1, or another schedule");
  }
}

// A step that is not finite ends on every stage, or is skipped by all.
TEST(Pipelines, AllEndOrSkipAStepThatIsNotFinite) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(described(shape));
    Case c = five_layers();
    c.mesh.pipeline = shape.stages;
    c.pipeline = shape.options;
    c.lr = 1e30;  // after one step the activations overflow
    EXPECT_NE(message_of(Fault::usage, [&] { train(c, shape.stages); }).find("step 2: the"),
              std::string::npos);
    c.skip = true;
    EXPECT_EQ(train(c, shape.stages).losses.size(), static_cast<size_t>(c.steps));
  }
}

Trained train_even(const Case& c, int ranks, const Sharding& sharding = kDdp) {
  return train_as_threads(c, ranks, sharding, even(29, c.config.vocab));
}

// With batches of one shape the passes are graphs from their third time on.
TEST(PipelinesOnGpu, AreBitwiseOneRank) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
    for (const Recompute recompute : {Recompute::none, Recompute::block})
      for (const bool lora : {false, true}) {
        Case c = five_layers();
        c.device = Device::cuda;
        c.precision = precision;
        c.recompute = recompute;
        c.global_batch = 12;
        c.steps = 8;
        if (lora) c.lora = every_map(0.1);
        for (const int64_t micro : {2, 12}) {
          c.micro_batch = micro;
          c.mesh = {};
          const Trained expected = train_even(c, 1), ragged_expected = train(c, 1);
          for (const Shape& shape : kShapes) {
            c.mesh.pipeline = shape.stages;
            c.pipeline = shape.options;
            SCOPED_TRACE(fmt::format("{}, {}, {}, micro-batches of {}{}", described(shape),
                                     name_of(precision), name_of(Recomputation(recompute)), micro,
                                     lora ? ", LoRA" : ""));
            EXPECT_EQ(train_even(c, shape.stages), expected);
            EXPECT_EQ(train(c, shape.stages), ragged_expected);
          }
        }
      }
}

TEST(PipelinesOnGpu, TimesRanksThatShareTheData) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  for (const bool tied : {false, true}) {
    Case c = five_layers();
    c.device = Device::cuda;
    c.config.tied = tied;
    c.global_batch = 12;
    c.steps = 8;
    c.optimizer = plain_sgd();
    const Trained expected = train_even(c, 1);
    for (const auto& [name, sharding] : kStrategies) {
      c.mesh.pipeline = 2;
      for (const int chunks : {1, 2}) {
        c.pipeline.chunks = chunks;
        SCOPED_TRACE(fmt::format("{}, {} chunks{}", name, chunks, tied ? ", tied" : ""));
        expect_near(train_even(c, 4, sharding), expected, 1e-5);
      }
    }
  }
}

TEST(Pipelines, NeedABlockForEveryPiece) {
  Case c = five_layers();
  c.mesh.pipeline = 3;
  c.pipeline.chunks = 2;
  EXPECT_EQ(message_of(Fault::usage, [&] { train(c, 3); }),
            "pipeline_parallel: 3 stages of 2 chunks need 6 blocks, one each, but the model has 5; "
            "use fewer stages, or fewer chunks (pipeline_schedule)");
}

}  // namespace
}  // namespace capstan::test
