#include "train/run.h"
#include "train/fit.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer_json.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

Recipe small_recipe() {
  Recipe r;
  r.global_batch_size = 4;
  r.micro_batch_size = 2;
  r.max_seq_length = 16;
  r.max_steps = 3;
  r.lr_warmup_steps = 0;
  r.val_split_fraction = 0;
  return r;
}

ModelConfig small_model() {
  ModelConfig c;
  c.vocab = 31;
  c.hidden = 16;
  c.intermediate = 24;
  c.layers = 2;
  c.heads = c.kv_heads = 2;
  c.head_dim = 8;
  return c;
}

Dataset samples(int64_t count) {
  Dataset data;
  for (int64_t s = 0; s < count; ++s)
    data.add(std::vector<int32_t>(static_cast<size_t>(3 + s % 9), static_cast<int32_t>(s % 31)), 1);
  return data;
}

// Progress goes to stderr; the tests need not show it.
struct Quiet {
  Quiet() { testing::internal::CaptureStderr(); }
  ~Quiet() { testing::internal::GetCapturedStderr(); }
};

TEST(CheckRecipe, TakesAWholeNumberOfMicroBatches) {
  Recipe r;
  for (const auto& [global, micro] : {std::pair{32, 32}, {32, 1}, {30, 6}}) {
    r.global_batch_size = global;
    r.micro_batch_size = micro;
    EXPECT_NO_THROW(check_recipe(r)) << global << " " << micro;
  }
}

TEST(CheckRecipe, NamesTheNearestBatchSizesThatWouldBe) {
  Recipe r;
  const auto refusal = [&](int64_t global, int64_t micro) {
    r.global_batch_size = global;
    r.micro_batch_size = micro;
    return message_of(Fault::usage, [&] { check_recipe(r); });
  };
  EXPECT_EQ(refusal(30, 7),
            "train.global_batch_size 30 is not a whole number of micro-batches of 7; 28 or 35 "
            "would be");
  EXPECT_EQ(refusal(8, 32),
            "train.global_batch_size 8 is not a whole number of micro-batches of 32; 32 would be, "
            "or train.micro_batch_size 8");
  EXPECT_NE(refusal(INT64_MAX, INT64_MAX - 1).find("18446744073709551612 would be"),
            std::string::npos);
}

TEST(CheckRecipe, RefusesARateThatWouldRise) {
  Recipe r;
  r.lr = 1e-5;
  r.min_lr = 4e-5;
  EXPECT_EQ(message_of(Fault::usage, [&] { check_recipe(r); }),
            "train.min_lr 4e-05 is above optimizer.lr 1e-05: the rate would rise; give a "
            "train.min_lr of at most 1e-05, or train.schedule constant");
  r.schedule = "constant";
  EXPECT_NO_THROW(check_recipe(r));
}

TEST(CheckRecipe, TellsAllThatIsWrongAtOnce) {
  Recipe r;
  r.global_batch_size = 5;
  r.lr = 1e-9;
  const std::string message = message_of(Fault::usage, [&] { check_recipe(r); });
  EXPECT_NE(message.find("train.global_batch_size 5"), std::string::npos) << message;
  EXPECT_NE(message.find("\ntrain.min_lr"), std::string::npos) << message;
}

TEST(AvailableMemory, IsMoreThanThisTestNeedsAndLessThanAnyMachineHas) {
  EXPECT_GT(available_memory(), int64_t{1} << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

class RequireFit : public testing::Test {
 protected:
  static TrainOptions options() {
    TrainOptions o;
    o.model = small_model();
    o.model.vocab = 300;
    o.model.layers = 12;
    o.model.hidden = 128;
    o.model.intermediate = 384;
    o.model.head_dim = 64;
    // As the largest of few and ragged documents give it: not a multiple of their number.
    o.limits = {.tokens = 7 * 64 - 50, .documents = 7, .longest = 64};
    o.single_micro_batch = true;
    return o;
  }
  std::string refusal(int64_t available) const {
    return message_of(Fault::does_not_fit,
                      [&] { require_fit(options(), 8, Trainer::plan(options()), available); });
  }
  const int64_t total = Trainer::plan(options()).total_bytes;
};

TEST_F(RequireFit, IsSilentWhenAllIsThere) {
  EXPECT_NO_THROW(require_fit(options(), 8, Trainer::plan(options()), total));
}

TEST_F(RequireFit, NamesChangesThatFit) {
  const std::string message = refusal(total - 1);
  EXPECT_EQ(message.rfind("does not fit: needs ", 0), 0u) << message;
  for (const char* part : {" free. Fits with: ", "activations: selective", " · ",
                           "activations: block", "precision: bf16-true"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in " << message;
}

// What is named must be true: the options with that change do fit.
TEST_F(RequireFit, TheMicroBatchItNamesFitsAndDividesTheOneGiven) {
  TrainOptions of_two = options();
  of_two.limits = {.tokens = 128, .documents = 2, .longest = 64};
  of_two.single_micro_batch = false;
  const int64_t enough_for_two = Trainer::plan(of_two).total_bytes;
  ASSERT_LT(enough_for_two, total);
  EXPECT_NE(refusal(enough_for_two).find("train.micro_batch_size: 2"), std::string::npos)
      << refusal(enough_for_two);
}

TEST_F(RequireFit, SaysSoWhenNoSingleChangeIsEnough) {
  EXPECT_NE(refusal(1 << 20).find("No single change"), std::string::npos) << refusal(1 << 20);
}

TEST_F(RequireFit, RefusesAModelOfTrillionsInUnderASecond) {
  TrainOptions o = options();
  o.model.hidden = o.model.intermediate = 65536;
  o.model.heads = o.model.kv_heads = 512;
  o.model.head_dim = 128;
  o.model.layers = 200;
  const std::clock_t start = std::clock();  // of the processor: a busy machine does not add to it
  message_of(Fault::does_not_fit, [&] { require_fit(o, 8, Trainer::plan(o), int64_t{64} << 30); });
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1.0);
}

TEST(TrainingRun, LearnsAndSavesAFolderThatOpensAgain) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = small_recipe();
  r.lr = 0.01;
  r.min_lr = 0;
  r.max_steps = 30;
  TrainingRun run(r, small_model(), samples(12), samples(3), 0);
  run.initialize();
  const double before = run.validate();
  run.train();
  EXPECT_LT(run.validate(), before);
  EXPECT_NE(run.report().find("30 steps in "), std::string::npos);
  run.save(folder / "final");

  EXPECT_EQ(read_config(folder / "final").vocab, 31);
  EXPECT_TRUE(is_byte_tokenizer(read_text(folder / "final" / "tokenizer.json"), "tokenizer.json"));
  Recipe back;
  read_recipe(back, folder / "final" / "hyperparameters.yaml");
  EXPECT_EQ(recipe_yaml(back), recipe_yaml(r));

  // Going on from it begins at the loss where it was.
  r.initial_checkpoint_dir = folder / "final";
  TrainingRun again(r, read_config(folder / "final"), samples(12), samples(3), 0);
  again.initialize();
  EXPECT_EQ(again.validate(), run.validate());
}

TEST(TrainingRun, ValidatesTheFirstMicroBatchesOnlyWhenTold) {
  const Quiet quiet;
  const auto loss = [](int64_t iterations, int64_t held_out) {
    Recipe r = small_recipe();
    r.eval_max_iters = iterations;
    TrainingRun run(r, small_model(), samples(4), samples(held_out), 0);
    run.initialize();
    return run.validate();
  };
  EXPECT_EQ(loss(2, 9), loss(100, 4));  // two micro-batches of two samples
  EXPECT_EQ(loss(4, 9), loss(100, 8));
  EXPECT_NE(loss(2, 9), loss(100, 9));
  EXPECT_EQ(loss(INT64_MAX, 9), loss(100, 9));
}

TEST(TrainingRun, TakesAnyBatchSizeWithoutOverflow) {
  const Quiet quiet;
  Recipe r = small_recipe();
  r.global_batch_size = r.micro_batch_size = INT64_MAX;
  r.eval_max_iters = INT64_MAX;
  r.max_steps = 1;
  TrainingRun run(r, small_model(), samples(5), samples(2), 0);
  run.initialize();
  EXPECT_NO_THROW(run.train());
}

TEST(TrainingRun, WithoutValidationDataThereIsNoValidation) {
  const Quiet quiet;
  TrainingRun run(small_recipe(), small_model(), samples(4), {}, 0);
  run.initialize();
  run.train();
  EXPECT_EQ(run.validate(), -1);
  EXPECT_EQ(run.report().find("held-out"), std::string::npos);
}

TEST(TrainingRun, KnowsBeforeTheTrainingThatItCannotSave) {
  const TempFolder folder;
  TrainingRun run(small_recipe(), small_model(), samples(4), {}, 0);
  EXPECT_NO_THROW(run.check_save(folder / "new"));
  EXPECT_TRUE(fs::is_empty(folder.path())) << "the check left something behind";

  fs::create_directory(folder / "taken");
  std::ofstream(folder / "taken" / "thesis.tex") << "precious";
  EXPECT_NE(message_of(Fault::file, [&] { run.check_save(folder / "taken"); }).find("taken"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(folder / "taken" / "thesis.tex"));
  EXPECT_NE(message_of(Fault::file, [&] { run.check_save(folder / "taken" / "thesis.tex"); }), "");
}

}  // namespace
}  // namespace capstan
