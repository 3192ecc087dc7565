// train.micro_batch_size auto, in runs.

#include "program.h"

namespace capstan::cli_test {
namespace {

class Automatic : public Cli {
 protected:
  // A short run; returns what it said.
  std::string trained(const Words& more) const {
    Words words = tiny({"--train.global_batch_size=8"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.err + o.out;
  }
  std::string weights(const char* run) const { return slurp(at(run) / "final/model.safetensors"); }
};

TEST_F(Automatic, TakesWhatFitsAndRecordsIt) {
  const std::string told = trained({"--train.micro_batch_size=auto", "--out_dir=open"});
  expect_holds(told, {"train.micro_batch_size: 8, the largest that fits"});
  expect_holds(slurp(at("open/final/hyperparameters.yaml")), {"micro_batch_size: 8\n"});
  trained({"--train.micro_batch_size=8", "--out_dir=given"});
  EXPECT_TRUE(weights("open") == weights("given"));
}

TEST_F(Automatic, AResumedRunTakesThatOfItsCheckpoint) {
  trained({"--train.micro_batch_size=2", "--out_dir=whole"});
  trained({"--train.micro_batch_size=2", "--out_dir=parts", "--train.max_steps=2",
           "--train.save_interval=1"});
  const std::string told =
      trained({"--train.micro_batch_size=auto", "--out_dir=parts", "--resume=parts/step-00000001"});
  expect_holds(told, {"train.micro_batch_size: 2, as in the checkpoint"});
}

TEST_F(Automatic, RanksTakeTheSame) {
  const std::string told = trained(
      {"--train.micro_batch_size=auto", "--devices=2", "--accelerator=cpu", "--out_dir=two"});
  expect_holds(told, {"train.micro_batch_size: 4, the largest that fits"});
}

TEST_F(Automatic, OtherWordsAreRefused) {
  expect_refused(2, tiny({"--train.micro_batch_size=0"}),
                 {"train.micro_batch_size: expected auto or a whole number above 0, found '0'"});
  expect_refused(2, tiny({"--train.micro_batch_size=most"}), {"expected auto or", "'most'"});
}

}  // namespace
}  // namespace capstan::cli_test
