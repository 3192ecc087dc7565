// Signals during validations: the run stops there, nothing is lost, and the resumed run makes the
// validation again.
#include <omp.h>

#include <atomic>
#include <map>

#include "base/files.h"
#include "base/log.h"
#include "comm/thread_group.h"
#include "report/metrics.h"
#include "run/short_run.h"

namespace capstan {
namespace {

using test::Quiet;

// Samples that ask for a stop when they are read the `at`-th time; 0: never.
class StoppingSamples final : public Samples {
 public:
  StoppingSamples(const Dataset& data, StopSource source, int64_t at)
      : samples_(data.samples()), source_(std::move(source)), at_(at) {}
  const SampleArrays& arrays() const override {
    if (armed && ++reads == at_) source_.request(SIGTERM);
    return samples_->arrays();
  }
  const std::vector<std::string>& files() const override { return samples_->files(); }

  std::atomic<bool> armed = false;
  mutable std::atomic<int64_t> reads = 0;

 private:
  std::shared_ptr<const Samples> samples_;
  mutable StopSource source_;
  int64_t at_;
};

// What is left of a run in its folder.
struct Result {
  std::string model, best;
  std::map<int64_t, std::vector<double>> validations;  // by step
};

Result result_of(const TempFolder& folder) {
  Result r;
  r.model = read_text(folder / "out/final/model.safetensors");
  r.best = read_text(folder / "out/best/model.safetensors");
  for (const MetricsRow& row : read_metrics(folder / "out/logs/csv/version_0/metrics.csv"))
    if (row.val_loss) r.validations[row.step].push_back(*row.val_loss);
  return r;
}

Recipe recipe_in(const TempFolder& folder) {
  Recipe r = test::short_recipe(folder);
  r.max_steps = 4;
  r.eval_interval = 2;
  r.eval_max_iters = 100;
  r.keep_best = true;
  r.resume = Resume{.mode = Resume::Mode::newest_if_any};
  return r;
}

// The run, with a signal at the `at`-th read of the validation samples. Returns the signal that
// interrupted it, and the number of reads.
std::pair<int, int64_t> run_until(const TempFolder& folder, int ranks, int64_t at) {
  StopSource source;
  RunInputs in = test::short_inputs(16, 9);
  const auto samples = std::make_shared<StoppingSamples>(in.data.validation, source, at);
  in.data.validation = Dataset(samples);
  const auto inputs = std::make_shared<const RunInputs>(std::move(in));
  const Recipe recipe = recipe_in(folder);
  std::atomic<int> signal = 0;
  const auto body = [&](Communicator group) {
    const log::Quiet quiet(group.rank() != 0);
    TrainingRun run(recipe, Task::pretrain, inputs, {.stop = source.token()}, group);
    run.initialize();
    if (run.finished() && !run.left_unfinished()) return;
    samples->armed = true;
    if (run.finished()) {
      run.finish_rest();
    } else {
      run.train();
      if (run.interrupted() == 0) run.finish();
    }
    if (group.rank() == 0) signal = run.interrupted();
  };
  if (ranks == 1)
    body({});
  else
    run_as_threads(ranks, body);
  return {signal, samples->reads};
}

class StopInValidation : public testing::TestWithParam<int> {};

TEST_P(StopInValidation, LosesNothingAndMakesTheValidationAgain) {
  const Quiet quiet;
  const int ranks = GetParam();
  omp_set_num_threads(ranks);  // one for each: threads of a tiny model spend their time waiting
  const TempFolder whole;
  const auto [none, reads] = run_until(whole, ranks, 0);
  ASSERT_EQ(none, 0);
  const Result expected = result_of(whole);
  ASSERT_EQ(expected.validations.size(), 2u) << "after steps 2 and 4";
  EXPECT_EQ(expected.validations.at(4).size(), 2u) << "to be compared, and the final one";
  int in_steps = 0, at_the_end = 0;
  const int64_t stops = ranks == 1 ? 9 : 5;
  for (int64_t stop = 0; stop < stops; ++stop) {
    const int64_t at = 1 + reads * (2 * stop + 1) / (2 * stops);
    SCOPED_TRACE(fmt::format("{} ranks, stopped at read {} of {}", ranks, at, reads));
    const TempFolder folder;
    // Several ranks do not ask each other after every micro-batch: the last one may be the end.
    const int signal = run_until(folder, ranks, at).first;
    if (signal != 0) {
      ASSERT_EQ(signal, SIGTERM);
      const bool has_final = std::filesystem::exists(folder / "out/final");
      (has_final ? at_the_end : in_steps) += 1;
      ASSERT_EQ(run_until(folder, ranks, 0).first, 0);
    }
    const Result found = result_of(folder);
    EXPECT_EQ(found.model == expected.model, true);
    EXPECT_EQ(found.best == expected.best, true);
    EXPECT_EQ(found.validations, expected.validations);
    if (HasFailure()) return;
  }
  EXPECT_GT(in_steps, 1);
  EXPECT_GT(at_the_end, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StopInValidation, testing::Values(1, 2));

}  // namespace
}  // namespace capstan
