#include "plan/fit.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <ctime>

#include "support/message_of.h"

namespace capstan {
namespace {

TEST(AvailableMemory, IsMoreThanThisTestNeedsAndLessThanAnyMachineHas) {
  EXPECT_GT(available_memory(), int64_t{1} << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

class RequireFit : public testing::Test {
 protected:
  static TrainOptions options() {
    TrainOptions o;
    o.model.vocab = 300;
    o.model.hidden = 128;
    o.model.intermediate = 384;
    o.model.layers = 12;
    o.model.heads = o.model.kv_heads = 2;
    o.model.head_dim = 64;
    // As the largest of few and ragged documents give it: not a multiple of their number.
    o.limits = {.tokens = 7 * 64 - 50, .documents = 7, .longest = 64};
    o.single_micro_batch = true;
    return o;
  }
  std::string refusal(int64_t available) const {
    return message_of(Fault::does_not_fit, [&] { require_fit(fit_of(options(), 8, {available})); });
  }
  const int64_t total = Trainer::plan(options()).device.total_bytes;
};

TEST_F(RequireFit, IsSilentWhenAllIsThere) {
  EXPECT_NO_THROW(require_fit(fit_of(options(), 8, {total})));
}

TEST_F(RequireFit, NamesChangesThatFit) {
  const std::string message = refusal(total - 1);
  EXPECT_EQ(message.rfind("does not fit: needs ", 0), 0u) << message;
  for (const char* part :
       {" free. Fits with: ", "activations: selective:1", " · ", "precision: bf16-true"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in " << message;
}

// What is named must be true: the options with that change do fit.
TEST_F(RequireFit, TheMicroBatchItNamesFitsAndDividesTheOneGiven) {
  TrainOptions of_two = options();
  of_two.limits = {.tokens = 128, .documents = 2, .longest = 64};
  of_two.single_micro_batch = false;
  const int64_t enough_for_two = Trainer::plan(of_two).device.total_bytes;
  ASSERT_LT(enough_for_two, total);
  EXPECT_NE(refusal(enough_for_two).find("train.micro_batch_size: 2"), std::string::npos)
      << refusal(enough_for_two);
}

TEST_F(RequireFit, SaysSoWhenNoChangeIsEnough) {
  EXPECT_NE(refusal(1 << 20).find("No change of"), std::string::npos) << refusal(1 << 20);
}

TEST_F(RequireFit, NamesSeveralChangesWhereOneIsNotEnough) {
  TrainOptions least = options();
  least.recompute = Recompute::block;
  least.precision = Precision::bf16_true;
  const std::string message = refusal(Trainer::plan(least).device.total_bytes);
  EXPECT_NE(message.find("Fits with: activations: block with precision: bf16-true"),
            std::string::npos)
      << message;
}

TEST_F(RequireFit, NamesMomentsIn8BitsBeforeNone) {
  TrainOptions few = options();
  few.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
  const int64_t enough = Trainer::plan(few).device.total_bytes;
  ASSERT_LT(enough, total);
  const std::string message = refusal(enough);
  const size_t eight = message.find("optimizer: AdamW8bit"), sgd = message.find("optimizer: SGD");
  EXPECT_LT(eight, sgd) << message;
  EXPECT_NE(sgd, std::string::npos) << message;
  EXPECT_EQ(refusal(enough - 1).find("AdamW8bit"), std::string::npos) << refusal(enough - 1);
  const Fit fit = fit_of(few, 8, {enough - 1});
  for (const std::string& change : fit.names_of_changes())
    EXPECT_NE(change, "optimizer: AdamW8bit");
}

// With all that costs less taken, moments in 8 bits are enough, or SGD takes their place.
TEST_F(RequireFit, TakesMomentsIn8BitsAsTheLastButOne) {
  TrainOptions o = options();
  o.model.hidden = 512;  // so that the state outweighs what the passes need
  o.model.intermediate = 1024;
  o.model.head_dim = 256;
  o.recompute = Recompute::block;
  o.precision = Precision::bf16_true;
  o.limits = {.tokens = 16, .documents = 1, .longest = 16};
  const auto needs = [&](OptimizerOptions::Kind kind) {
    TrainOptions with = o;
    with.optimizer.kind = kind;
    return Trainer::plan(with).device.total_bytes;
  };
  using Kind = OptimizerOptions::Kind;
  const int64_t few = needs(Kind::adamw8bit), none = needs(Kind::sgd);
  ASSERT_LT(few, needs(Kind::adamw));
  ASSERT_LT(none, few);
  o.precision = Precision::f32_true;
  EXPECT_EQ(fit_of(o, 1, {few}).names_of_changes(),
            std::vector<std::string>{"precision: bf16-true with optimizer: AdamW8bit"});
  EXPECT_EQ(fit_of(o, 1, {none}).names_of_changes(),
            std::vector<std::string>{"precision: bf16-true with optimizer: SGD"});
}

// The least that is enough is named, or, where it may be chosen, taken.
TEST_F(RequireFit, FindsHowMuchToRecompute) {
  const int layers = static_cast<int>(options().model.layers);
  TrainOptions open = options();
  open.recompute_to_fit = true;
  for (int rung = 0; rung < 2 * layers; ++rung) {
    TrainOptions o = options();
    o.recompute = Recomputation::at_rung(rung, layers);
    const int64_t needed = Trainer::plan(o).device.total_bytes;
    const Fit fit = fit_of(open, 8, {needed});
    EXPECT_EQ(name_of(fit.options.recompute), name_of(o.recompute));
    EXPECT_EQ(fit.plan.device.total_bytes, needed);
    EXPECT_FALSE(fit.options.recompute_to_fit);
    if (rung == 0) continue;
    EXPECT_EQ(fit_of(options(), 8, {needed}).names_of_changes().at(0),
              "activations: " + name_of(o.recompute));
  }
}

// Rungs may need a little more than those below: it is the first that is taken, whatever fits.
TEST_F(RequireFit, TakesTheFirstRungThatFits) {
  TrainOptions o = options();
  o.precision = Precision::bf16_true;
  o.optimizer.kind = OptimizerOptions::Kind::sgd;
  o.model.hidden = o.model.intermediate = 2048;
  o.model.heads = 16;
  o.model.kv_heads = 4;
  o.model.head_dim = 128;
  o.model.layers = 6;
  o.limits = {.tokens = 2048, .documents = 1, .longest = 2048};
  const int usual = omp_get_max_threads();
  omp_set_num_threads(2);  // scratch follows it, and decides which rung needs more
  const int layers = static_cast<int>(o.model.layers);
  std::vector<int64_t> needed;
  for (int rung = 0; rung <= 2 * layers; ++rung) {
    o.recompute = Recomputation::at_rung(rung, layers);
    needed.push_back(Trainer::plan(o).device.total_bytes);
  }
  ASSERT_FALSE(std::is_sorted(needed.rbegin(), needed.rend())) << "choose another model";
  o.recompute_to_fit = true;
  for (const int64_t available : needed) {
    const auto first =
        std::find_if(needed.begin(), needed.end(), [&](int64_t n) { return n <= available; });
    const Fit fit = fit_of(o, 1, {available});
    EXPECT_TRUE(fit.fits());
    EXPECT_EQ(fit.options.recompute.rung(layers), first - needed.begin());
  }
  omp_set_num_threads(usual);
}

// What recomputing cannot help is no reason for it.
TEST_F(RequireFit, HostMemoryIsNoReasonToRecompute) {
  TrainOptions o = options();
  o.device = Device::cuda;
  o.optimizer.paged = o.recompute_to_fit = true;
  const Fit fit = fit_of(o, 8, {.device = int64_t{1} << 40, .host = 1000});
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(name_of(fit.options.recompute), "none");
}

TEST_F(RequireFit, RecomputesAllBeforeItRefuses) {
  TrainOptions open = options(), least = options();
  open.recompute_to_fit = true;
  least.recompute = Recompute::block;
  const Fit fit = fit_of(open, 8, {Trainer::plan(least).device.total_bytes - 1});
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(name_of(fit.options.recompute), "block");
  for (const std::string& change : fit.names_of_changes())
    EXPECT_EQ(change.find("activations"), std::string::npos) << change;
  // Larger batches are searched with all of it recomputed.
  EXPECT_EQ(largest_micro_batch(open, {total}), largest_micro_batch(least, {total}));
}

TEST_F(RequireFit, GivesUpTheCopyBeforeItRecomputes) {
  TrainOptions open = options();
  open.recompute_to_fit = open.staging = true;
  const Fit fit = fit_of(open, 8, {total});
  EXPECT_EQ(name_of(fit.options.recompute), "none");
  EXPECT_FALSE(fit.options.staging);
  EXPECT_GT(fit.dropped_staging, 0);
  // More room would go to the activations first: no number is named.
  EXPECT_EQ(fit.verdict().find("more it could save"), std::string::npos) << fit.verdict();
  EXPECT_NE(fit.verdict().find("no memory is left for a copy"), std::string::npos);
}

TEST_F(RequireFit, ACopyToSaveFromIsTheFirstToGo) {
  TrainOptions o = options();
  o.staging = true;
  const int64_t with_copy = Trainer::plan(o).device.total_bytes;
  EXPECT_GT(with_copy, total);
  EXPECT_EQ(fit_of(o, 8, {with_copy}).dropped_staging, 0);
  const Fit fit = fit_of(o, 8, {total});
  EXPECT_TRUE(fit.fits());
  EXPECT_FALSE(fit.options.staging);
  EXPECT_EQ(fit.dropped_staging, with_copy - total);
  EXPECT_EQ(fit.plan.device.total_bytes, total);
}

// The largest that is named fits, and one more does not.
TEST_F(RequireFit, FindsTheLargestBatchAndSequence) {
  const int64_t available = 2 * total;
  const auto needs = [&](int64_t documents, int64_t longest) {
    TrainOptions o = options();
    o.limits = {.tokens = documents * longest, .documents = documents, .longest = longest};
    return Trainer::plan(o).device.total_bytes;
  };
  const int64_t batch = largest_micro_batch(options(), {available});
  EXPECT_LE(needs(batch, 64), available);
  EXPECT_GT(needs(batch + 1, 64), available);
  const int64_t sequence = largest_sequence(options(), {available});
  EXPECT_LE(needs(7, sequence), available);
  EXPECT_GT(needs(7, sequence + 1), available);
  EXPECT_EQ(largest_micro_batch(options(), {1000}), 0);
}

// A step of several micro-batches keeps gradients from one to the next.
TEST_F(RequireFit, TheLargestBatchIsOneOfSeveralWhereTheWholeDoesNotFit) {
  TrainOptions whole = options();
  whole.single_micro_batch = true;
  whole.limits.tokens = whole.limits.documents * whole.limits.longest;
  const int64_t available = Trainer::plan(whole).device.total_bytes - 1;
  const auto needs = [&](int64_t documents) {
    TrainOptions o = options();
    o.single_micro_batch = false;
    o.limits = {.tokens = documents * 64, .documents = documents, .longest = 64};
    return Trainer::plan(o).device.total_bytes;
  };
  const int64_t batch = largest_micro_batch(whole, {available});
  EXPECT_LT(batch, whole.limits.documents);
  EXPECT_TRUE(batch == 0 || needs(batch) <= available);
  EXPECT_GT(needs(batch + 1), available);
  EXPECT_GE(largest_micro_batch(whole, {available + 1}), whole.limits.documents)
      << "all at once needs no gradients between micro-batches";
}

TEST_F(RequireFit, TheLongestSampleHasRoomForWhatIsGeneratedAfterIt) {
  constexpr int64_t kGenerated = 40;
  const auto needs = [&](int64_t longest) {
    TrainOptions o = options();
    o.limits = {.tokens = o.limits.documents * longest,
                .documents = o.limits.documents,
                .longest = longest};
    o.sample_positions = std::min(o.model.max_positions, longest + kGenerated);
    return Trainer::plan(o).device.total_bytes;
  };
  TrainOptions o = options();
  o.sample_positions = std::min(o.model.max_positions, o.limits.longest + kGenerated);
  for (const int64_t longest : {5, 17, 60}) {
    const int64_t found = largest_sequence(o, {needs(longest)}, kGenerated);
    EXPECT_GE(found, longest);
    EXPECT_LE(needs(found), needs(longest));
  }
}

TEST_F(RequireFit, RefusesAModelOfTrillionsInUnderASecond) {
  TrainOptions o = options();
  o.model.hidden = o.model.intermediate = 65536;
  o.model.heads = o.model.kv_heads = 512;
  o.model.head_dim = 128;
  o.model.layers = 200;
  // Of this thread: neither a busy machine nor threads that wait for work add to it.
  const auto seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = seconds();
  message_of(Fault::does_not_fit, [&] { require_fit(fit_of(o, 8, {int64_t{64} << 30})); });
  EXPECT_LT(seconds() - start, 1.0);
}

// Recomputation moves the cuts of a pipeline, and with them the rank that needs most.
TEST_F(RequireFit, JudgesEveryStage) {
  TrainOptions open = options();
  open.model.layers = 20;
  open.ranks.size = open.mesh.pipeline = 4;
  open.pipeline.chunks = 2;
  open.pipeline.micro_batches = 8;
  open.recompute_to_fit = true;
  const auto needs = [](TrainOptions o) {
    int64_t most = 0;
    for (o.ranks.rank = 0; o.ranks.rank < o.ranks.size; ++o.ranks.rank)
      most = std::max(most, Trainer::plan(o).device.total_bytes);
    return most;
  };
  int fitting = 0;
  for (int rung = 0; rung <= 40; rung += 8) {
    TrainOptions o = open;
    o.recompute_to_fit = false;
    o.recompute = Recomputation::at_rung(rung, 20);
    const Room room{needs(o)};
    const Fit fit = fit_of(open, 8, room);
    EXPECT_TRUE(fit.fits() || rung > 0) << "what needs no recomputation";
    EXPECT_EQ(fit.fits(), needs(fit.options) <= room.device) << name_of(fit.options.recompute);
    EXPECT_EQ(fit.plan.device.total_bytes, needs(fit.options));
    fitting += fit.fits();
    for (const Change& change : fit.changes)
      EXPECT_LE(needs(change.options), room.device) << change.what;
  }
  EXPECT_GT(fitting, 2);
}

// Of a run on several ranks: the mildest strategy that fits, or more ranks with a GPU each.
TEST_F(RequireFit, ProposesStrategiesAndRanks) {
  TrainOptions o = options();
  o.ranks.size = 4;
  o.pipeline.micro_batches = 8;
  const auto needs = [&](const Sharding& sharding, int ranks) {
    TrainOptions other = o;
    other.sharding = sharding;
    other.ranks.size = ranks;
    other.network.room = ranks > 8;  // on two machines
    return bytes_of(plan_ranks(other, {}).needs).most;
  };
  const auto first_change = [&](int64_t available) {
    const Fit fit = fit_of(o, 8, {available});
    return fit.changes.empty() ? "" : fit.changes[0].what;
  };
  EXPECT_EQ(first_change(needs(kZero1, 4)), "strategy: zero1");
  EXPECT_EQ(first_change(needs(kZero3, 4)), "strategy: zero3");
  EXPECT_TRUE(fit_of(o, 8, {needs(kDdp, 4)}).changes.empty());
  o.device = Device::cuda;
  EXPECT_EQ(first_change(needs(kZero3, 16)), "devices: 8, num_nodes: 2 with strategy: zero3");
  o.sharding = kZero3;
  EXPECT_EQ(first_change(needs(kZero3, 8)), "devices: 8");
}

// The keys say how many GPUs each machine has, and a step has a micro-batch for each rank.
TEST_F(RequireFit, ProposesMachinesThatThereAreMicroBatchesFor) {
  TrainOptions o = options();
  o.device = Device::cuda;
  o.sharding = kZero3;
  o.ranks.size = 16;
  o.machines = 2;
  TrainOptions four = o;
  four.ranks.size = 64;
  four.network.room = true;
  const Room room{bytes_of(plan_ranks(four, {}).needs).most};
  const auto of_more_gpus = [&](int64_t micro_batches) {
    o.pipeline.micro_batches = micro_batches;
    std::optional<Change> found;
    for (const Change& change : fit_of(o, 8, room).changes)
      if (change.what.starts_with("devices")) found = change;
    return found;
  };
  const auto change = of_more_gpus(7);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->what, "devices: 8, num_nodes: 8");
  EXPECT_EQ(change->options.machines, 8);
  EXPECT_EQ(change->options.ranks.size, 64);
  EXPECT_EQ(change->options.pipeline.micro_batches, 2) << "7 of 16 ranks are 4 of 32, 2 of 64";
  EXPECT_FALSE(of_more_gpus(2)) << "32 ranks have one each";
}

}  // namespace
}  // namespace capstan
