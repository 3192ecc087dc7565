// What a run settles of a recipe that leaves it open: see run/automatic.h.

#include "run/automatic.h"

#include "base/files.h"
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

}  // namespace
}  // namespace capstan::test
