// Several ranks train as one does: see model/sharding.h and comm/communicator.h.

#include "comm/simulated.h"
#include "rank_run.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

TEST(Ranks, AnyStrategyTrainsAsOneRankDoes) {
  for (const bool lora : {false, true})
    for (const int64_t micro : {2, 5}) {
      Case c{.micro_batch = micro};
      c.optimizer = plain_sgd();
      if (lora) c.lora = every_map(0.1);
      const Trained expected = train(c, 1);
      for (const int ranks : {2, 3, 4, 8})
        for (const auto& [name, sharding] : kStrategies) {
          SCOPED_TRACE(fmt::format("{} on {} ranks, micro-batches of {}{}", name, ranks, micro,
                                   lora ? ", LoRA" : ""));
          expect_near(train(c, ranks, sharding), expected, 1e-5);
        }
    }
}

TEST(Ranks, EveryPrecisionRecomputationAndOptimizer) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_mixed, Precision::bf16_true,
                               Precision::f16_mixed, Precision::f16_true})
    for (const Recompute recompute : {Recompute::none, Recompute::block})
      for (const bool tied : {false, true}) {
        Case c{.precision = precision, .recompute = recompute};
        if (tied) c.config = all_features();
        // 16-bit sums differ in the last bits. The first steps of AdamW would make whole updates of
        // gradients that are no larger than that, if eps did not.
        if (precision != Precision::f32_true) c.optimizer.eps = 1e-3;
        const Trained expected = train(c, 1);
        const double tolerance = precision == Precision::f32_true ? 2e-5 : 0.03;
        for (const auto& [name, sharding] : kStrategies) {
          SCOPED_TRACE(fmt::format("{} {} {}{}", name, name_of(precision),
                                   name_of(Recomputation(recompute)), tied ? ", tied" : ""));
          expect_near(train(c, 3, sharding), expected, tolerance);
        }
      }
}

// The number of micro-batches in flight, what is recomputed, trained and quantized, and the types:
// all of it on 1 to 8 ranks with every strategy, with ragged samples whose number nothing divides.
TEST(Ranks, EveryWayToTrainIsThatOfOneRank) {
  const TempFolder temp;
  save_base(grouped_config(), temp / "base");
  enum class Way : uint8_t { full, lora, qlora };
  for (const Way way : {Way::full, Way::lora, Way::qlora})
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
      for (const Recompute recompute : {Recompute::none, Recompute::block})
        for (const int64_t accumulation : {1, 3}) {
          Case c{.precision = precision, .recompute = recompute, .steps = 10};
          c.optimizer = plain_sgd();
          c.base = temp / "base";
          if (way != Way::full) c.lora = every_map(0.1);
          if (way == Way::qlora) c.quantize = Quantize::nf4;
          std::map<int64_t, Trained> expected;  // by micro-batch
          for (const int ranks : {1, 2, 3, 5, 8}) {
            c.micro_batch = (c.global_batch + ranks * accumulation - 1) / (ranks * accumulation);
            auto& one = expected[c.micro_batch];
            if (one.losses.empty()) one = train(c, 1);
            for (const auto& [name, sharding] : kStrategies) {
              SCOPED_TRACE(fmt::format("{} on {} ranks, way {}, {}, {}, {} micro-batches", name,
                                       ranks, static_cast<int>(way), name_of(precision),
                                       name_of(Recomputation(recompute)), accumulation));
              expect_near(train(c, ranks, sharding), one,
                          precision == Precision::f32_true ? 1e-5 : 2e-2);
            }
          }
        }
}

// 200 random recipes on random meshes: every rank takes from its plan what it asks for, and nothing
// else. An arena that is asked for more, or for something else, throws.
TEST(Ranks, FollowTheirPlansWhateverTheRecipe) {
  const TempFolder temp;
  save_base(aligned_config(), temp / "base");
  const Rng rng({.seed = 21});
  for (uint64_t i = 0; i < 200; ++i) {
    uint64_t draw = 16 * i;
    const auto below = [&](uint64_t n) { return static_cast<int>(rng.below(draw++, n)); };
    Case c{.config = aligned_config(), .steps = 2};
    c.precision = std::array{Precision::f32_true, Precision::bf16_true,
                             Precision::bf16_mixed}[static_cast<size_t>(below(3))];
    c.recompute = std::array{Recompute::none, Recompute::selective,
                             Recompute::block}[static_cast<size_t>(below(3))];
    c.optimizer.kind = std::array{OptimizerKind::adamw, OptimizerKind::sgd,
                                  OptimizerKind::adamw8bit}[static_cast<size_t>(below(3))];
    c.optimizer.momentum = 0.5 * below(2);
    c.micro_batch = 1 + below(5);
    c.global_batch = c.micro_batch * (1 + below(4));
    c.staging = below(2) == 0;
    if (const int way = below(3); way > 0) {
      c.lora = every_map(0.1 * below(2));
      c.base = temp / "base";
      if (way == 2) c.quantize = below(2) == 0 ? Quantize::nf4 : Quantize::nf4_dq;
    }
    if (c.lora && c.optimizer.kind == OptimizerKind::adamw8bit)
      c.optimizer.kind = OptimizerKind::adamw;  // slices of adapters may not begin at blocks
    const int ranks = 1 + below(8);
    c.single = c.global_batch <= c.micro_batch * ranks;
    auto [name, sharding] = kStrategies[below(4)];
    if (ranks % 2 == 0 && below(3) == 0) std::tie(name, sharding) = std::tuple("hybrid", hybrid(2));
    SCOPED_TRACE(fmt::format("recipe {}: {} on {} ranks", i, name, ranks));
    train(c, ranks, sharding);
  }
}

// With one micro-batch for each rank, the strategies differ in nothing but where values are kept.
TEST(Ranks, StrategiesAreBitwiseEqualWithoutAccumulation) {
  for (const bool single : {false, true})
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed, Precision::f16_mixed})
      for (const bool lora : {false, true}) {
        Case c{.precision = precision, .micro_batch = 5, .single = single};
        if (lora) c.lora = every_map(0.1);
        const Trained expected = train(c, 3, kDdp);
        EXPECT_EQ(train(c, 3, kDdp), expected) << "two runs";
        for (const auto& [name, sharding] : kStrategies)
          EXPECT_EQ(train(c, 3, sharding), expected) << name << ' ' << name_of(precision) << lora;
        c.micro_batch = 3;
        for (const int machines : {2, 3}) {
          const Trained flat = train(c, 6, {.machines = machines});
          Trained found = train(c, 6, hybrid(machines));
          // The norm is added from other slices, in f64: its last bit may differ.
          for (size_t i = 0; i < flat.norms.size(); ++i) {
            EXPECT_NEAR(found.norms[i], flat.norms[i], 1e-14 * flat.norms[i]);
            found.norms[i] = flat.norms[i];
          }
          EXPECT_EQ(found, flat) << machines << name_of(precision) << lora;
          Sharding zero3 = kZero3;
          zero3.machines = machines;
          EXPECT_EQ(train(c, 6, zero3), flat) << machines << name_of(precision) << lora;
        }
      }
}

// Slices begin at blocks of 8-bit moments wherever the model's sizes allow it.
TEST(Ranks, EightBitMomentsAreThoseOfDdp) {
  Case c{.config = aligned_config(), .precision = Precision::bf16_mixed, .micro_batch = 5};
  c.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
  const Trained expected = train(c, 3, kDdp);
  for (const Sharding& sharding : {kZero1, kZero2, kZero3})
    EXPECT_EQ(train(c, 3, sharding), expected);
  c.config.intermediate = 100;
  c.config.hidden = 60;
  EXPECT_NE(message_of(Fault::usage, [&] { train(c, 3, kZero1); }).find("8-bit moments"),
            std::string::npos);
}

// Groups of ranks keep slices of the model, and all groups the same.
TEST(Ranks, HybridGroupsTrainAsOneRankDoes) {
  for (const bool lora : {false, true})
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
      for (const int64_t micro : {2, 5}) {
        Case c{.precision = precision, .micro_batch = micro, .steps = 10};
        c.optimizer = plain_sgd();
        if (lora) c.lora = every_map(0.1);
        const Trained expected = train(c, 1);
        const double tolerance = precision == Precision::f32_true ? 1e-5 : 2e-2;
        for (const auto& [ranks, replicas] :
             {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 4}, {3, 3}, {5, 1}}) {
          SCOPED_TRACE(fmt::format("{} replicas of {} ranks in all{}", replicas, ranks,
                                   lora ? ", LoRA" : ""));
          const Trained found = train(c, ranks, hybrid(replicas));
          expect_near(found, expected, tolerance);
          EXPECT_EQ(train(c, ranks, hybrid(replicas)), found) << "two runs";
          if (replicas == ranks) {
            EXPECT_EQ(found, train(c, ranks, {.machines = replicas}));
          }
          if (replicas == 1) {
            EXPECT_EQ(found, train(c, ranks, kZero3));
          }
        }
      }
  EXPECT_NE(message_of(Fault::bug, [] { train(Case{}, 4, hybrid(3)); }).find("3 machines"),
            std::string::npos);
}

// One rank is a mesh of one.
TEST(Ranks, OneRankMayShard) {
  for (const bool single : {false, true}) {
    Case c{.micro_batch = 13, .single = single};
    const Trained expected = train(c, 1);
    for (const auto& [name, sharding] : kStrategies) {
      SCOPED_TRACE(name);
      EXPECT_EQ(train(c, 1, sharding), expected);
    }
  }
}

// Samples of one length: graphs of a step are recorded, and replayed.
Trained train_even(const Case& c, int ranks, const Sharding& sharding = kDdp) {
  Dataset data;
  const Rng rng({.seed = 9});
  uint64_t draw = 0;
  for (int64_t s = 0; s < 24; ++s) {
    std::vector<int32_t> tokens(17);
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(c.config.vocab)));
    data.add(tokens, 0);
  }
  return train_as_threads(c, ranks, sharding, data);
}

// Ranks that share one GPU train as one rank there does, with graphs that collectives cut.
TEST(RanksOnGpu, TrainAsOneRankDoes) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  const TempFolder temp;
  save_base(grouped_config(), temp / "base");
  enum class Way : uint8_t { full, lora, qlora };
  for (const Way way : {Way::full, Way::lora, Way::qlora})
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
      for (const int64_t accumulation : {1, 3}) {
        Case c{.device = Device::cuda, .precision = precision, .global_batch = 12, .steps = 10};
        c.optimizer = plain_sgd();
        c.base = temp / "base";
        if (way != Way::full) c.lora = every_map(0.1);
        if (way == Way::qlora) c.quantize = Quantize::nf4;
        for (const int ranks : {2, 4}) {
          c.micro_batch = c.global_batch / (ranks * accumulation);
          const Trained expected = train_even(c, 1), ragged_expected = train(c, 1);
          for (const auto& [name, sharding] : kStrategies) {
            SCOPED_TRACE(fmt::format("{} on {} ranks, way {}, {}, {} micro-batches", name, ranks,
                                     static_cast<int>(way), name_of(precision), accumulation));
            const double tolerance = precision == Precision::f32_true ? 1e-5 : 2e-2;
            expect_near(train_even(c, ranks, sharding), expected, tolerance);
            expect_near(train(c, ranks, sharding), ragged_expected, tolerance);
          }
          if (ranks == 4)
            expect_near(train_even(c, ranks, hybrid(2)), expected,
                        precision == Precision::f32_true ? 1e-5 : 2e-2);
        }
      }
}

TEST(RanksOnGpu, StrategiesAreBitwiseEqualWithoutAccumulation) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  for (const bool single : {false, true})
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed}) {
      Case c{.device = Device::cuda,
             .precision = precision,
             .micro_batch = 4,
             .global_batch = 12,
             .single = single,
             .steps = 8};
      const Trained expected = train_even(c, 3, kDdp);
      EXPECT_EQ(train_even(c, 3, kDdp), expected) << "two runs";
      for (const auto& [name, sharding] : kStrategies)
        EXPECT_EQ(train_even(c, 3, sharding), expected) << name << ' ' << name_of(precision);
    }
}

// A step that is not finite ends on every rank, with the weights as they were and no rank waiting
// or reading another's memory; or is skipped by all.
TEST(Ranks, AllEndOrSkipAStepThatIsNotFinite) {
  for (const auto& [name, sharding] : kStrategies) {
    SCOPED_TRACE(name);
    Case c{.micro_batch = 5};
    c.lr = 1e30;  // after one step the activations overflow
    EXPECT_NE(message_of(Fault::usage, [&, &s = sharding] { train(c, 3, s); }).find("step 2: the"),
              std::string::npos);
    c.skip = true;
    const Trained skipped = train(c, 3, sharding);
    EXPECT_EQ(skipped.losses.size(), static_cast<size_t>(c.steps));
  }
}

// More ranks than micro-batches: some are idle in every step, and nobody waits for them.
TEST(Ranks, WithoutWorkTakePartAllTheSame) {
  Case c{.micro_batch = 5, .global_batch = 7};
  c.optimizer = plain_sgd();
  const Trained expected = train(c, 1);
  for (const bool single : {false, true})
    for (const auto& [name, sharding] : kStrategies) {
      c.single = single;
      SCOPED_TRACE(name);
      expect_near(train(c, 5, sharding), expected, 1e-5);
    }
}

// What a rank keeps shrinks with the ranks; what passes through it does not grow.
TEST(Ranks, ShardsTakeLessMemory) {
  const Dataset data = ragged(29, grouped_config().vocab);
  const auto plan = [&](const Sharding& sharding, int ranks) {
    Case c{.precision = Precision::bf16_mixed};
    c.config.layers = 24;  // a unit or two are whole at a time
    TrainOptions o = options_of(c, data, sharding);
    o.ranks.size = ranks;
    return Trainer::plan(o).device.highest;
  };
  const ByCategory one = plan(kDdp, 1);
  for (const int ranks : {2, 4}) {
    const double share = 1.0 / ranks, slack = 0.1;
    const auto fraction = [&](const ByCategory& found, Category category) {
      return static_cast<double>(at(found, category)) / static_cast<double>(at(one, category));
    };
    EXPECT_NEAR(fraction(plan(kDdp, ranks), Category::optimizer), 1, slack);
    EXPECT_NEAR(fraction(plan(kZero1, ranks), Category::optimizer), share, slack);
    EXPECT_NEAR(fraction(plan(kZero3, ranks), Category::optimizer), share, slack);
    const auto bytes = [&](const Sharding& sharding, Category category) {
      return at(plan(sharding, ranks), category);
    };
    EXPECT_LT(bytes(kZero1, Category::weights), bytes(kDdp, Category::weights)) << "masters";
    EXPECT_LT(bytes(kZero3, Category::weights), bytes(kZero2, Category::weights));
    EXPECT_LT(bytes(kZero2, Category::gradients), bytes(kZero1, Category::gradients));
  }
}

// On sim, a network on which the collectives of a step take half as long as its computation.
struct Timed {
  double seconds = 0, waited = 0, computed = 0;
};

Timed step_on_sim(const Sharding& sharding, const Network& network) {
  Case c;
  c.config.layers = 24;
  c.config.vocab = 40;  // the embedding comes last, and has nothing to overlap with
  const Dataset data = ragged(29, c.config.vocab);
  Arena arena;
  Queue q(Device::sim, arena, {.flops_per_second = 1e9, .bytes_per_second = 1e10});
  Trainer trainer(q, options_of(c, data, sharding), simulated({0, 4}, "dp", network));
  trainer.rehearse();
  StepBatches batches(data, 8, c.micro_batch, 11, {.max_seq_length = 32, .vocab = c.config.vocab},
                      {0, 4});
  trainer.step(batches.of(0), 0);
  q.reset_totals();
  const double now = q.now(), waited = q.waited();
  trainer.step(batches.of(1), 1);
  return {q.now() - now, q.waited() - waited, q.seconds()};
}

TEST(Ranks, CommunicationOverlapsWithComputationOnSim) {
  for (const auto& [name, sharding] : kStrategies) {
    SCOPED_TRACE(name);
    const Timed fast = step_on_sim(sharding, {});
    EXPECT_EQ(fast.waited, 0);
    EXPECT_NEAR(fast.seconds, fast.computed, 1e-9);
    // At 1 B/s the network alone decides.
    const double bytes = step_on_sim(sharding, {.bytes_per_second = 1}).seconds;
    const Timed half = step_on_sim(sharding, {.bytes_per_second = bytes / (0.5 * fast.seconds)});
    EXPECT_NEAR(half.computed, fast.computed, 1e-9);
    EXPECT_NEAR(half.seconds, half.computed + half.waited, 1e-9);
    EXPECT_GT(half.waited, 0) << "the last sums are exposed";
    EXPECT_LT(half.seconds, 1.1 * fast.seconds);
  }
}

}  // namespace
}  // namespace capstan::test
