// Ranks that share layers, sequences and stages train as one rank does: see model/split_tokens.h,
// model/split_heads.h and comm/mesh.h.

#include "rank_run.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::test {
namespace {

// Sizes that nothing divides: 3 key heads, an odd vocabulary and number of inner channels.
Case odd_sizes() {
  Case c;
  c.config.heads = 6;
  c.config.kv_heads = 3;
  c.config.hidden = c.config.heads * c.config.head_dim;
  c.config.vocab = 101;
  c.config.intermediate = 37;
  c.config.layers = 3;
  c.optimizer = plain_sgd();
  return c;
}

std::string described(const Case& c, int ranks, const char* strategy = "ddp") {
  return fmt::format("{} ranks: {} stages, tensor {}, context {}, {}, micro-batches of {}{}", ranks,
                     c.mesh.pipeline, c.mesh.tensor, c.mesh.context, strategy, c.micro_batch,
                     c.lora ? ", LoRA" : "");
}

TEST(Meshes, SharedLayersAndSequencesTrainAsOneRank) {
  for (const bool lora : {false, true})
    for (const int64_t micro : {2, 13}) {
      Case c = odd_sizes();
      c.micro_batch = micro;
      c.steps = 10;
      if (lora) c.lora = every_map(0.1);
      const Trained expected = train(c, 1);
      for (const auto& [tensor, context] :
           {std::pair{2, 1}, {3, 1}, {4, 1}, {6, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 2}}) {
        c.mesh = {.tensor = tensor, .context = context};
        SCOPED_TRACE(described(c, tensor * context));
        expect_near(train(c, tensor * context), expected, 1e-5);
      }
    }
}

TEST(Meshes, AnyProductTrainsAsOneRank) {
  for (const auto& [lora, tied] : {std::pair{false, false}, {false, true}, {true, false}}) {
    Case c = odd_sizes();
    c.config.tied = tied;
    c.steps = 10;
    if (lora) c.lora = every_map(0.1);
    const Trained expected = train(c, 1);
    for (const int stages : {1, 2})
      for (const int tensor : {1, 2})
        for (const int context : {1, 2})
          for (const int data : {1, 2}) {
            const int ranks = stages * tensor * context * data;
            if (ranks > 8) continue;
            for (const auto& [name, sharding] : kStrategies) {
              if (data * context == 1 && sharding.state == Hold::shard) continue;
              c.mesh = {.pipeline = stages, .tensor = tensor, .context = context};
              SCOPED_TRACE(described(c, ranks, name) + (tied ? ", tied" : ""));
              expect_near(train(c, ranks, sharding), expected, 1e-5);
            }
          }
  }
}

TEST(Meshes, EveryFeaturePrecisionAndRecomputation) {
  for (const auto precision :
       {Precision::f32_true, Precision::bf16_mixed, Precision::bf16_true, Precision::f16_mixed})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      Case c{.config = all_features(), .precision = precision, .recompute = recompute};
      c.optimizer = plain_sgd();
      const Trained expected = train(c, 1);
      for (const auto& [tensor, context] : {std::pair{2, 1}, {4, 1}, {1, 2}, {2, 2}}) {
        c.mesh = {.tensor = tensor, .context = context};
        SCOPED_TRACE(fmt::format("{} {} {}", described(c, tensor * context), name_of(precision),
                                 name_of(Recomputation(recompute))));
        expect_near(train(c, tensor * context), expected,
                    precision == Precision::f32_true ? 1e-5 : 5e-2);
      }
    }
}

// Half of the tokens are exchanged while products of the other half run, in the forward pass, and
// gradients of weights are computed during exchanges of the backward pass.
TEST(Meshes, OverlappedExchangesTrainAsOneRank) {
  for (const auto& [lora, micro] : {std::pair{false, 2}, {false, 13}, {true, 2}, {true, 13}}) {
    Case c = odd_sizes();
    c.micro_batch = micro;
    c.steps = 10;
    if (lora) c.lora = every_map(0.1);
    const Trained expected = train(c, 1);
    for (const auto& [stages, tensor, context, data] : {std::tuple{1, 2, 1, 1},
                                                        {1, 3, 1, 1},
                                                        {1, 2, 2, 1},
                                                        {2, 2, 1, 1},
                                                        {1, 2, 1, 2},
                                                        {2, 2, 1, 2}})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
        c.mesh = {.pipeline = stages,
                  .tensor = tensor,
                  .context = context,
                  .overlap = true,
                  .padded_to_overlap = true};
        c.recompute = recompute;
        const int ranks = c.mesh.ranks() * data;
        SCOPED_TRACE(described(c, ranks));
        expect_near(train(c, ranks, data > 1 ? kZero3 : kDdp), expected, 1e-5);
      }
  }
}

TEST(Meshes, WithEverySchedule) {
  for (const bool lora : {false, true}) {
    Case c = odd_sizes();
    c.config.layers = 5;
    if (lora) c.lora = every_map(0.1);
    const Trained expected = train(c, 1);
    for (const PipelineOptions& options :
         {PipelineOptions{}, {.chunks = 2}, {.kind = PipelineKind::zero_bubble}})
      for (const auto& [tensor, context] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
        c.mesh = {.pipeline = 2, .tensor = tensor, .context = context};
        c.pipeline = options;
        SCOPED_TRACE(described(c, c.mesh.ranks()));
        expect_near(train(c, c.mesh.ranks()), expected, 1e-5);
      }
  }
}

// Random numbers do not know the mesh: stochastic rounding and dropout draw as on one rank. With
// sums of the same bits the weights would be the same; the first step of AdamW moves each weight by
// the learning rate, whatever the last bits of its gradient.
TEST(Meshes, DrawAsOneRankDoes) {
  Case c{.config = aligned_config(), .precision = Precision::bf16_true};
  c.optimizer.stochastic = true;
  c.steps = 1;
  const Trained expected = train(c, 1);
  for (const auto& [tensor, context] : {std::pair{2, 1}, {1, 2}}) {
    c.mesh = {.tensor = tensor, .context = context};
    const Trained found = train(c, tensor * context);
    int64_t equal = 0, all = 0;
    for (const auto& [param, values] : expected.weights)
      for (size_t i = 0; i < values.size(); ++i, ++all)
        equal += values[i] == found.weights.at(param)[i];
    // Other draws would leave less than half of them equal.
    EXPECT_GT(static_cast<double>(equal), 0.9 * static_cast<double>(all));
  }
}

TEST(Meshes, OfAQuantizedModel) {
  const TempFolder temp;
  Case c{.config = aligned_config()};
  c.config.head_dim = 32;  // half of the channels of o and down are whole blocks of 64 values
  c.config.intermediate = 192;
  save_base(c.config, temp / "base");
  c.base = temp / "base";
  c.lora = every_map(0.1);
  c.optimizer = plain_sgd();
  for (const Quantize kind : {Quantize::nf4, Quantize::nf4_dq, Quantize::fp4_dq, Quantize::int8}) {
    c.quantize = kind;
    c.mesh = {};
    const Trained expected = train(c, 1);
    for (const auto& [tensor, context, data] :
         {std::tuple{2, 1, 1}, {1, 2, 1}, {2, 1, 2}, {2, 2, 2}})
      for (const Sharding& sharding : {kDdp, kZero3}) {
        c.mesh = {.tensor = tensor, .context = context};
        SCOPED_TRACE(described(c, tensor * context * data) + std::string(name_of(kind)));
        expect_near(train(c, tensor * context * data, sharding), expected, 1e-5);
      }
  }
}

TEST(Meshes, EightBitMoments) {
  Case c{.config = aligned_config()};
  c.config.heads = 8;  // half of the channels of o and down are whole blocks of 256 moments
  c.config.head_dim = 64;
  c.config.intermediate = 512;
  c.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
  const Trained expected = train(c, 1);
  for (const auto& [tensor, data] : {std::pair{2, 1}, {2, 2}}) {
    c.mesh = {.tensor = tensor};
    // A moment at the border of two codes may get either.
    expect_near(train(c, tensor * data, data > 1 ? kZero1 : kDdp), expected, 5e-3);
  }
}

// Every rank takes from its plan what it asks for, and nothing else.
TEST(Meshes, FollowTheirPlansWhateverTheRecipe) {
  const Rng rng({.seed = 23});
  for (uint64_t i = 0; i < 100; ++i) {
    uint64_t draw = 16 * i;
    const auto below = [&](uint64_t n) { return static_cast<int>(rng.below(draw++, n)); };
    Case c{.config = below(2) == 0 ? odd_sizes().config : all_features(), .steps = 2};
    c.precision = std::array{Precision::f32_true, Precision::bf16_true,
                             Precision::bf16_mixed}[static_cast<size_t>(below(3))];
    c.recompute = std::array{Recompute::none, Recompute::selective,
                             Recompute::block}[static_cast<size_t>(below(3))];
    c.mesh = {.pipeline = 1 + below(2), .tensor = 1 + below(3), .context = 1 + below(2)};
    c.mesh.overlap = c.mesh.padded_to_overlap = below(2) == 0;
    const int ranks = c.mesh.ranks() * (1 + below(2));
    // With 3 ranks for 2 key heads there are ranks of a single query head.
    if (ranks > 8 || (c.mesh.tensor == 3 && c.mesh.context == 2)) continue;
    c.micro_batch = 1 + below(5);
    c.global_batch = c.micro_batch * (1 + below(6));
    c.staging = below(2) == 0;
    if (below(3) == 0) c.lora = every_map(0.1 * below(2));
    c.single = c.global_batch <= c.micro_batch * ranks / c.mesh.ranks();
    const auto& [name, sharding] = kStrategies[below(4)];
    SCOPED_TRACE(fmt::format("recipe {}: {}", i, described(c, ranks, name)));
    train(c, ranks, sharding);
  }
}

// What a rank asks for is what was planned, in every category, when all batches are of the largest
// size; and a model of layers that are split over 4 ranks takes a quarter of the memory on each.
TEST(Meshes, RanksAllocateWhatIsPlanned) {
  for (const auto& [tensor, context, overlap] :
       {std::tuple{2, 1, false}, {4, 1, false}, {1, 4, false}, {2, 2, false}, {2, 2, true}})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      Case c{.config = aligned_config(), .recompute = recompute};
      c.mesh = {
          .tensor = tensor, .context = context, .overlap = overlap, .padded_to_overlap = overlap};
      const Dataset data = even(24, c.config.vocab);
      std::mutex mutex;
      run_as_threads(tensor * context, [&](Communicator group) {
        TrainOptions o = options_of(c, data, kDdp);
        o.ranks = group.ranks();
        const RunPlan plan = Trainer::plan(o);
        Arena arena(plan.device, Device::cpu);
        Queue q(Device::cpu, arena);
        Trainer trainer(q, o, group);
        trainer.params().initialize(q, 3);
        const BatchOptions options{
            .max_seq_length = 32, .vocab = c.config.vocab, .shares = c.mesh.token_multiple()};
        StepBatches batches(data, 4, 2, 11, options);
        trainer.step(batches.of(0), 0);
        Sampler in_order(data.size(), data.size(), 0, false);
        MicroBatches held(data, 2, options);
        held.start(in_order.ids(0));
        trainer.evaluate(held);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(arena.highest(), plan.device.highest) << group.rank();
        EXPECT_EQ(arena.allocated_bytes(), plan.device.total_bytes);
      });
    }
}

ByCategory planned(Case c, int tensor, int context) {
  const Dataset data = even(24, c.config.vocab);
  c.mesh = {.tensor = tensor, .context = context};
  TrainOptions o = options_of(c, data, kDdp);
  o.ranks = {0, tensor * context};
  return Trainer::plan(o).device.highest;
}

TEST(Meshes, AQuarterOfTheModelOnEachOfFour) {
  ModelConfig model = grouped_config();
  model.hidden = 512;
  model.heads = model.kv_heads = 8;
  model.head_dim = 64;
  model.intermediate = 2048;
  model.vocab = 4096;
  const Case c{.config = model};
  const ByCategory one = planned(c, 1, 1), four = planned(c, 4, 1), sequence = planned(c, 1, 4);
  for (const Category of : {Category::weights, Category::gradients, Category::optimizer})
    EXPECT_NEAR(static_cast<double>(at(four, of)), static_cast<double>(at(one, of)) / 4,
                0.01 * static_cast<double>(at(one, of)));
  // Ranks that share a sequence have a quarter of the activations, and of what a layer needs.
  EXPECT_LT(static_cast<double>(at(sequence, Category::activations)),
            0.35 * static_cast<double>(at(one, Category::activations)));
  // Weights are padded, to be cut into slices for the ranks.
  EXPECT_NEAR(static_cast<double>(at(sequence, Category::weights)),
              static_cast<double>(at(one, Category::weights)), 1e4);
}

// The logits after a prompt and after one more token, on every rank.
std::vector<Values> decoded(const Case& c, int ranks) {
  std::vector<Values> all;
  std::mutex mutex;
  const Dataset data = ragged(29, c.config.vocab);
  run_as_threads(ranks, [&](Communicator group) {
    TrainOptions o = options_of(c, data, kDdp);
    o.ranks = group.ranks();
    o.sample_positions = 9;
    const RunPlan plan = Trainer::plan(o);
    Arena arena(plan.device, Device::cpu);
    Queue q(Device::cpu, arena);
    Trainer trainer(q, o, group);
    trainer.params().initialize(q, 3);
    const std::vector<int32_t> prompt = {1, 5, 2, 7, 3}, next = {4};
    for (const auto& ids : {prompt, next}) {
      const auto logits = trainer.decoder()->feed(q, ids);
      const std::lock_guard lock(mutex);
      all.emplace_back(logits.begin(), logits.end());
    }
  });
  return all;
}

TEST(Meshes, DecodeAsOneRank) {
  for (const Case& c : {odd_sizes(), Case{.config = all_features()}}) {
    const std::vector<Values> expected = decoded(c, 1);
    for (const MeshShape& mesh : {MeshShape{.tensor = 2},
                                  {.tensor = 4},
                                  {.context = 2},
                                  {.pipeline = 2, .tensor = 2},
                                  {.pipeline = 2, .tensor = 2, .context = 2}}) {
      Case shared = c;
      shared.mesh = mesh;
      SCOPED_TRACE(described(shared, mesh.ranks()));
      for (const Values& found : decoded(shared, mesh.ranks()))
        EXPECT_LT(std::min(error(found, expected[0]), error(found, expected[1])), 1e-5);
    }
  }
}

// With batches of one shape the passes are graphs, cut where ranks exchange something.
TEST(MeshesOnGpu, TrainAsOneRank) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  const Dataset data = even(29, aligned_config().vocab);
  const auto train_even = [&](const Case& c, int ranks, const Sharding& sharding) {
    return train_as_threads(c, ranks, sharding, data);
  };
  for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
    for (const bool lora : {false, true}) {
      Case c{.device = Device::cuda, .config = aligned_config(), .precision = precision};
      c.config.layers = 3;
      c.optimizer = plain_sgd();
      c.global_batch = 12;
      c.steps = 8;
      if (lora) c.lora = every_map(0.1);
      const Trained expected = train_even(c, 1, kDdp), of_ragged = train(c, 1);
      for (const auto& [stages, tensor, context, ranks, overlap] : {std::tuple{1, 2, 1, 2, false},
                                                                    {1, 2, 1, 2, true},
                                                                    {1, 4, 1, 4, false},
                                                                    {1, 1, 2, 2, false},
                                                                    {1, 2, 2, 4, false},
                                                                    {2, 2, 1, 4, false},
                                                                    {1, 2, 1, 4, true},
                                                                    {2, 2, 2, 8, true}})
        for (const Recompute recompute : {Recompute::none, Recompute::block}) {
          c.mesh = {.pipeline = stages,
                    .tensor = tensor,
                    .context = context,
                    .overlap = overlap,
                    .padded_to_overlap = overlap};
          c.recompute = recompute;
          SCOPED_TRACE(described(c, ranks) + std::string(name_of(precision)));
          const double tolerance = precision == Precision::f32_true ? 1e-5 : 3e-2;
          expect_near(train_even(c, ranks, kZero2), expected, tolerance);
          expect_near(train(c, ranks, kDdp), of_ragged, tolerance);
        }
    }
}

TEST(Meshes, SayWhatCannotBeShared) {
  Case c = odd_sizes();
  c.mesh.tensor = 7;
  EXPECT_EQ(message_of(Fault::usage, [&] { train(c, 7); }),
            "tensor_parallel: 7 ranks cannot share a layer of 6 query heads for 3 key heads and 37 "
            "inner channels; use fewer");
  c.mesh = {.context = 8};
  EXPECT_EQ(message_of(Fault::usage, [&] { train(c, 8); }),
            "context_parallel: 8 ranks cannot share 6 query heads for 3 key heads; use fewer");
  c.mesh = {.tensor = 4, .context = 3};
  EXPECT_EQ(message_of(Fault::usage, [&] { train(c, 12); }),
            "context_parallel: 3 ranks cannot share 1 query head for 1 key head, which "
            "tensor_parallel 4 leaves on a rank; use fewer");
  c.mesh = {.tensor = 2};
  c.precision = Precision::bf16_true;
  c.optimizer = {.stochastic = true};
  EXPECT_NE(message_of(Fault::usage, [&] { train(c, 2); })
                .find("optimizer.rounding: stochastic draws for groups of 8 values, and "
                      "tensor_parallel 2 would cut one of"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan::test
