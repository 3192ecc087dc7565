// What is said to fit fits in the plan of every rank, and so does what is said to make a run fit.
// `./do storm plans` tries more of it.
#include <cstdlib>

#include "random_verdict.h"

namespace capstan::test {
namespace {

struct Counts {
  int judged = 0, near = 0, staged = 0, fit = 0, changes = 0;
};

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// A recipe's own plan: with its activations or, if they are open, with those that are chosen.
void expect_fits(const RandomVerdict& verdict, const RandomVerdict::Keys& keys,
                 const std::string& what) {
  TrainOptions o = verdict.options(keys);
  o.staging = false;
  const Fit fit = judge(o, verdict.room());
  EXPECT_TRUE(fit.fits()) << what << ": " << fit.verdict() << "\n" << verdict.text();
  EXPECT_TRUE(verdict.has_room_for(RandomVerdict::needed(fit.options))) << what << "\n"
                                                                        << verdict.text();
}

void check(const RandomVerdict& verdict, Counts& counts) {
  const TrainOptions asked = verdict.options();
  const int64_t micro_batch = verdict.number("train.micro_batch_size");
  const Fit fit = fit_of(asked, micro_batch, verdict.room());
  ++counts.judged;
  counts.near += std::abs(verdict.tightness() - 1) <= 0.1;
  counts.staged += asked.mesh.pipeline > 1;
  if (fit.fits()) {
    ++counts.fit;
    TrainOptions own = verdict.options({{"activations", name_of(fit.options.recompute)}});
    own.staging = fit.options.staging;
    EXPECT_TRUE(verdict.has_room_for(RandomVerdict::needed(own))) << fit.verdict() << "\n"
                                                                  << verdict.text();
  }
  for (const Change& change : fit.changes) {
    ++counts.changes;
    expect_fits(verdict, keys_of(change.what), change.what);
  }
  TrainOptions bare = asked;
  bare.staging = false;
  const int64_t global = verdict.number("train.global_batch_size");
  if (const int64_t n = largest_micro_batch(bare, verdict.room()); n > 0)
    expect_fits(
        verdict,
        {{"train.micro_batch_size", std::to_string(n)},
         {"train.global_batch_size", std::to_string(std::max(global, n * verdict.data_ranks()))}},
        fmt::format("micro-batches of {}", n));
}

TEST(RandomVerdicts, HoldForEveryRank) {
  const uint64_t first = number_from("CAPSTAN_STORM_SEED", 0);
  const uint64_t cases = number_from("CAPSTAN_STORM_CASES", 40);
  Counts counts;
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    try {
      check(RandomVerdict(seed), counts);
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::usage) << e.what();
    }
  }
  fmt::print(
      "seeds {} to {}: {} plans, {} within a tenth of the limit, {} of stages; {} fit, {} "
      "changes\n",
      first, first + cases - 1, counts.judged, counts.near, counts.staged, counts.fit,
      counts.changes);
  if (cases < 40) return;  // too few for a part of them
  EXPECT_GE(counts.near, 0.3 * counts.judged);
  EXPECT_GE(counts.judged, static_cast<int>(cases) / 4);
}

}  // namespace
}  // namespace capstan::test
