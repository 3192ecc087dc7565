// What a run settles of a recipe that leaves it open: see run/automatic.h.

#include "run/automatic.h"

#include <omp.h>

#include <atomic>

#include "base/files.h"
#include "base/log.h"
#include "comm/thread_group.h"
#include "short_run.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

class MatmulPrecisions : public testing::Test {
 protected:
  MatmulPrecisions() {
    recipe.precision = Precision::f32_true;
    recipe.matmul_precision.reset();
    recipe.accelerator = Accelerator::cpu;
  }

  // A checkpoint of out_dir with this record.
  void record(const char* checkpoint, const std::string& text) const {
    const fs::path dir = fs::path(recipe.out_dir) / checkpoint;
    fs::create_directories(dir);
    write_text(dir / "hyperparameters.yaml", text);
  }
  MatmulPrecision settled() const {
    const Quiet quiet;
    return resolve_automatic(recipe, Task::pretrain, inputs, {}).matmul_precision.value();
  }
  MatmulPrecision resumed() {
    recipe.resume.mode = Resume::Mode::newest_if_any;
    return settled();
  }

  const TempFolder folder;
  Recipe recipe = short_recipe(folder);
  const RunInputs inputs = short_inputs(8, 0);
};

TEST_F(MatmulPrecisions, OfANewRunFollowTheDevice) {
  EXPECT_EQ(settled(), MatmulPrecision::highest) << "a CPU has no other";
  recipe.accelerator = Accelerator::cuda;
  EXPECT_EQ(settled(),
            computes_bf16(Device::cuda) ? MatmulPrecision::high : MatmulPrecision::highest);
  recipe.precision = Precision::f16_mixed;
  EXPECT_EQ(settled(), MatmulPrecision::highest) << "nothing is multiplied in f32";
  recipe.precision = Precision::f32_true;
  recipe.matmul_precision = MatmulPrecision::highest;
  EXPECT_EQ(settled(), MatmulPrecision::highest) << "as asked";
}

TEST_F(MatmulPrecisions, OfAResumedRunAreThoseOfItsRecord) {
  for (const Accelerator accelerator : {Accelerator::cpu, Accelerator::cuda}) {
    recipe.accelerator = accelerator;
    record("step-00000002", "precision: 32-true\nmatmul_precision: highest\n");
    EXPECT_EQ(resumed(), MatmulPrecision::highest);
    record("step-00000004", "precision: 32-true\nmatmul_precision: high\n");
    EXPECT_EQ(resumed(), MatmulPrecision::high);
    record("step-00000006", "precision: 32-true\n");
    EXPECT_EQ(resumed(), MatmulPrecision::highest) << "it is older than the key";
    record("step-00000006", "precision: [\n");
    EXPECT_EQ(resumed(), MatmulPrecision::high) << "that of the newest that can be read";
    recipe.resume = {Resume::Mode::folder, (fs::path(recipe.out_dir) / "step-00000002").string()};
    EXPECT_EQ(settled(), MatmulPrecision::highest);
    fs::remove_all(recipe.out_dir);
  }
}

// Strategies of a run that leaves its own open, on ranks that are threads.
class Strategies : public testing::Test {
 protected:
  Strategies() {
    recipe.accelerator = Accelerator::cpu;
    recipe.global_batch_size = 5;
    recipe.micro_batch_size = 1;
    recipe.max_steps = 4;
    recipe.save_interval = 2;
  }
  Strategy::Kind settled(int ranks) const {
    std::atomic<Strategy::Kind> kind = Strategy::automatic;
    on(ranks, [&](const Recipe& resolved, Communicator group) {
      if (group.rank() == group.size() - 1) kind = resolved.strategy.kind;
    });
    return kind;
  }
  void train(int ranks, int64_t last) const {
    on(ranks, [&](const Recipe& resolved, Communicator group) {
      TrainingRun run(resolved, Task::pretrain, inputs, {}, group);
      run.stop_after(last);
      run.initialize();
      run.verify();
      run.train();
    });
  }
  template <class Body>
  void on(int ranks, const Body& body) const {
    const Quiet quiet;
    omp_set_num_threads(ranks);
    run_as_threads(
        ranks,
        [&](Communicator group) {
          const log::Quiet silent(group.rank() != 0);
          body(resolve_automatic(recipe, Task::pretrain, *inputs, group), group);
        },
        std::chrono::seconds(60));
  }

  const TempFolder folder;
  Recipe recipe = short_recipe(folder);
  const std::shared_ptr<const RunInputs> inputs =
      std::make_shared<const RunInputs>(short_inputs(13, 0));
};

TEST_F(Strategies, OfAResumedRunKeepItsBits) {
  recipe.strategy = Strategy::ddp;
  train(2, 2);
  recipe.strategy = Strategy::automatic;
  EXPECT_EQ(settled(2), Strategy::automatic) << "a new run";
  recipe.resume.mode = Resume::Mode::newest_if_any;
  EXPECT_EQ(settled(2), Strategy::ddp);
  EXPECT_EQ(settled(3), Strategy::automatic) << "three ranks add in another order";
  recipe.micro_batch_size = 5;
  EXPECT_EQ(settled(2), Strategy::automatic) << "as does one micro-batch";
  recipe.micro_batch_size.automatic = true;
  EXPECT_EQ(settled(2), Strategy::ddp);
  recipe.strategy = Strategy::zero1;
  EXPECT_EQ(settled(2), Strategy::zero1) << "as asked";
}

}  // namespace
}  // namespace capstan::test
