// The plans of random recipes are in a sane order: whoever asks for more needs more memory.
#include "plan/alike.h"
#include "random_run.h"

namespace capstan::test {
namespace {

MemoryPlan plan(const TrainOptions& options) {
  return Trainer::plan(options).device;
}

// What is live at the peak. What is allocated is somewhat more, since buffers of changing sizes
// have to be packed, and by luck more of them may pack better: so it is the peak that has an order.
int64_t peak(const TrainOptions& options) {
  return plan(options).peak_bytes;
}

// Of the rank that needs most.
int64_t most(TrainOptions o) {
  int64_t bytes = 0;
  for (const int rank : ranks_that_differ(o)) {
    o.ranks.rank = rank;
    bytes = std::max(bytes, peak(o));
  }
  return bytes;
}

// Compares allocations, too: they must hardly ever be in another order.
struct Order {
  int64_t compared = 0, inverted = 0;

  void expect(const MemoryPlan& less, const MemoryPlan& more, int64_t room,
              const std::string& what) {
    EXPECT_LE(less.peak_bytes, more.peak_bytes + room) << what;
    EXPECT_LE(static_cast<double>(less.total_bytes), 1.15 * static_cast<double>(more.total_bytes))
        << what;
    ++compared;
    inverted += less.total_bytes > more.total_bytes;
  }
};

// Buffers end at multiples of 256 bytes: that many that are cut in other places.
constexpr int64_t kCuts = 64 * kBufferAlignment;

// Tokens of a micro-batch that a rank has between the exchanges of a layer, at most.
int64_t tokens_of_rank(const TrainOptions& o) {
  return o.limits.for_shares(o.mesh.token_multiple()).tokens / o.mesh.tensor / o.mesh.context;
}

// What a plan with more words may need less. On a CPU the head takes fewer tokens at a time, so
// that their logits still fit into its cache: fewer inputs and gradients, and up to 16 tokens of
// logits. Slices of a state move along its tensors.
int64_t less_for_more_words(const TrainOptions& o) {
  const int64_t chunk =
      o.device == Device::cpu ? 8 * tokens_of_rank(o) * o.model.hidden + 64 * o.model.vocab : 0;
  return chunk + (o.sharding.state == Hold::shard ? kCuts : 0);
}

TEST(RandomPlans, NeedMoreForMoreSamplesTokensLayersAndWords) {
  constexpr int kRecipes = 10'000;
  Order order;
  const auto check = [&](RandomRun& run, const TrainOptions& o, const MemoryPlan& base) {
    const auto with = [&](const char* what, int64_t room, const auto& change) {
      TrainOptions more = o;
      change(more);
      order.expect(base, plan(more), room, what + (": " + run.text()));
    };
    with("a sample more", 0, [](auto& m) {
      ++m.limits.documents;
      m.limits.tokens += m.limits.longest;
    });
    const int64_t tokens = run.one_of({1, 7, 64});
    with("longer samples", 0, [&](auto& m) {
      m.limits.longest += tokens;
      m.limits.tokens += tokens * m.limits.documents;
      if (m.sample_positions > 0) m.sample_positions += tokens;
    });
    if (o.mesh.pipeline == 1)
      with("a layer more", 0, [](auto& m) {
        ++m.model.layers;
        m.pipeline.cuts.clear();
      });
    // Ranks share the vocabulary in blocks of 8 words.
    const int64_t words = 8 * o.mesh.tensor * run.one_of({1, 8, 60});
    with("more words", less_for_more_words(o), [&](auto& m) { m.model.vocab += words; });
  };
  const int possible = for_each_plan(0, kRecipes, check);
  EXPECT_GT(possible, kRecipes / 2);
  EXPECT_LT(possible, kRecipes * 9 / 10) << "nothing is refused";
  EXPECT_LT(order.inverted, order.compared / 500);
}

// A block that is computed again is there as a whole, while its input is still kept, where other
// policies have one part of it after the other: its input and output, and what `selective` makes
// again. It matters where there are few blocks, or where the peak is elsewhere.
int64_t block_made_again(const TrainOptions& o) {
  const ModelConfig& c = o.model;
  constexpr int64_t kBuffers = 6;
  return tokens_of_rank(o) * (4 * c.hidden + c.intermediate) *
             size_of(types_of(o.precision).compute) +
         kBuffers * kBufferAlignment;
}

TEST(RandomPlans, NeedLessWithRecomputation) {
  for_each_plan(20'000, 1500, [](RandomRun& run, TrainOptions o, const MemoryPlan&) {
    const auto with = [&](Recompute policy) {
      o.recompute = policy;
      return peak(o);
    };
    const int64_t none = with(Recompute::none), selective = with(Recompute::selective);
    EXPECT_LE(selective, none) << run.text();
    EXPECT_LE(with(Recompute::block), selective + block_made_again(o)) << run.text();
  });
}

// Whole units of this rank's stage, in bytes as they are gathered and as gradients.
struct Units {
  std::vector<int64_t> weights, gradients;
  bool tied = false;
};
Units units_of(const TrainOptions& o) {
  const ModelSpec spec = spec_of(o, o.ranks);
  const PrecisionTypes types = types_of(o.precision);
  const int stages = o.mesh.pipeline, stage = o.ranks.rank / (o.ranks.size / stages);
  const bool first = stage == 0, last = stage + 1 == stages;
  std::vector<bool> here(static_cast<size_t>(spec.units()));
  for (auto piece = static_cast<size_t>(stage); piece + 1 < o.pipeline.cuts.size();
       piece += static_cast<size_t>(stages))
    for (int block = o.pipeline.cuts[piece]; block < o.pipeline.cuts[piece + 1]; ++block)
      here[static_cast<size_t>(block) + 1] = true;
  here.front() = first || (last && o.model.tied);
  here.back() = last;
  Units units{.weights = std::vector<int64_t>(here.size()),
              .gradients = std::vector<int64_t>(here.size()),
              .tied = o.model.tied};
  // Slices begin at multiples of 256 values; the last one of a unit may be that much longer.
  const int64_t grain = 256;
  for (const Param& p : spec.params) {
    const auto u = static_cast<size_t>(p.unit);
    if (!here[u]) continue;
    const int64_t values = (p.shape.numel() + grain - 1) / grain * grain;
    units.weights[u] += values * (p.quantize == Quantize::none ? size_of(types.compute) : 1);
    if (p.trainable) units.gradients[u] += values * size_of(types.grad);
  }
  return units;
}

// What slices save of these units, less what is whole for a while: the unit in use and the next
// one, and with tied embeddings that one throughout. Negative only for models of few units.
int64_t saved_by_slices(const std::vector<int64_t>& units, bool tied, int ranks) {
  int64_t all = 0, largest = 0;
  for (const int64_t bytes : units) {
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const int64_t padding = 256 * 4 * std::ssize(units) * ranks;
  return all - all / ranks - 2 * largest - (tied ? units.front() : 0) - padding;
}

TEST(RandomPlans, NeedLessTheMoreIsSharded) {
  int sure = 0;
  for_each_plan(30'000, 1500, [&](RandomRun& run, TrainOptions o, const MemoryPlan&) {
    const int ranks = o.ranks.size / o.mesh.pipeline / o.mesh.tensor;
    if (ranks == 1 || o.sharding.offload) return;
    const auto with = [&](const Sharding& sharding) {
      o.sharding = sharding;
      return peak(o);
    };
    const int64_t ddp = with(kDdp), zero1 = with(kZero1);
    EXPECT_LE(zero1, ddp) << run.text();
    if (o.pipeline.kind == PipelineKind::zero_bubble && o.mesh.pipeline > 1) return;  // refused
    const Units units = units_of(o);
    const int64_t weights = saved_by_slices(units.weights, units.tied, ranks);
    int64_t gradients = saved_by_slices(units.gradients, units.tied, ranks);
    // If a step is one micro-batch, whole gradients live from their block's backward pass on, and
    // slices from the beginning.
    if (o.single_micro_batch)
      for (const int64_t bytes : units.gradients) gradients -= bytes;
    const int64_t zero2 = with(kZero2), zero3 = with(kZero3);
    EXPECT_LE(zero2, zero1 - std::min<int64_t>(gradients, 0)) << run.text();
    EXPECT_LE(zero3, zero2 - std::min<int64_t>(weights, 0)) << run.text();
    sure += gradients >= 0 && weights >= 0;
  });
  EXPECT_GT(sure, 100);
}

// Values without meaning among this rank's parameters: each begins at a multiple of 256, and each
// unit has as many for each rank. Trained ones are also laid out on their own.
int64_t padding_values(const TrainOptions& o) {
  const ModelSpec spec = spec_of(o, o.ranks);
  const int64_t grain = 256, ranks = o.ranks.size / o.mesh.pipeline / o.mesh.tensor;
  if (ranks == 1) return 0;
  const auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  int64_t padding = 0;
  for (const bool all : {true, false}) {
    std::vector<int64_t> units(static_cast<size_t>(spec.units()));
    for (const Param& p : spec.params) {
      if (!all && !p.trainable) continue;
      units[static_cast<size_t>(p.unit)] += up(p.shape.numel(), grain);
      padding += up(p.shape.numel(), grain) - p.shape.numel();
    }
    for (const int64_t n : units) padding += up(n, grain * ranks) - n;
  }
  return padding;
}

// What `after` may need more than `before` has, which has half as many ranks: padding of weights,
// gradients, masters, moments and copies to save from, 32 bytes for each value at most; and if
// `before` has nobody to share with, units that are whole for a while.
int64_t room_to_share(const TrainOptions& before, const TrainOptions& after) {
  int64_t room = 32 * padding_values(after) + kCuts;
  const int ranks = after.ranks.size / after.mesh.pipeline / after.mesh.tensor;
  if (before.ranks.size > before.mesh.pipeline * before.mesh.tensor || ranks == 1) return room;
  const Units units = units_of(after);
  const auto whole = [&](const std::vector<int64_t>& bytes) {
    return std::max<int64_t>(0, -saved_by_slices(bytes, units.tied, ranks));
  };
  if (after.sharding.weights == Hold::shard) room += whole(units.weights);
  if (after.sharding.gradients == Hold::shard) room += whole(units.gradients);
  return room;
}

// Not of stages: the first of more stages keeps more micro-batches of fewer blocks.
TEST(RandomPlans, NeedNoMoreOnMoreRanks) {
  for_each_plan(40'000, 500, [](RandomRun& run, const TrainOptions& o, const MemoryPlan&) {
    if (o.ranks.size > 8) return;
    const int64_t before = most(o);
    for (int RandomRun::*ways : {&RandomRun::data, &RandomRun::tensor, &RandomRun::context}) {
      RandomRun more = run;
      more.*ways *= 2;
      try {
        const TrainOptions shared = more.options();
        EXPECT_LE(most(shared), before + room_to_share(o, shared)) << more.text();
      } catch (const Error& e) {
        EXPECT_EQ(e.fault(), Fault::usage) << e.what() << "\n" << more.text();
      }
    }
  });
}

// Where adapters are thin, and the scales of blocks and one matrix in full precision are less than
// what quantization saves of all matrices: from 256 channels and four layers on. On a GPU: the
// panels of a CPU's products depend on its threads.
TEST(RandomPlans, NeedLessWithAdaptersAndLeastWithAQuantizedBase) {
  for_each_plan(50'000, 1500, [](RandomRun& run, TrainOptions o, const MemoryPlan&) {
    if (o.ranks.size > 1) return;
    o.device = Device::cuda;
    o.model.hidden = run.one_of({256, 320, 512});
    o.model.intermediate = run.one_of({256, 512, 1344});
    o.model.layers = run.one_of({4, 6});
    o.pipeline.cuts.clear();
    o.lora.reset();
    o.quantize = Quantize::none;
    const int64_t full = peak(o);
    o.lora = LoraOptions{.r = run.one_of({1, 4, 8})};
    const int64_t lora = peak(o);
    EXPECT_LT(lora, full) << run.text();
    for (const Quantize kind : {Quantize::int8, Quantize::nf4, Quantize::nf4_dq}) {
      o.quantize = kind;
      EXPECT_LT(peak(o), lora) << name_of(kind) << ", " << run.text();
    }
  });
}

}  // namespace
}  // namespace capstan::test
