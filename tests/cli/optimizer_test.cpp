// Runs with optimizers other than the usual one, as a user asks for them.

#include "checkpoint/safetensors.h"
#include "checkpoint/training_state.h"
#include "program.h"
#include "tensor/device.h"

namespace capstan::cli_test {
namespace {

class Optimizers : public Cli {
 protected:
  // So large that its matrices have moments in 8 bits.
  static Words small(const std::string& out, const Words& more) {
    Words words = brief({"--model.hidden_size=64", "--model.intermediate_size=96",
                         "--model.num_hidden_layers=1", "--model.num_attention_heads=2",
                         "--train.save_interval=3", "--train.max_steps=7", "--out_dir=" + out});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string weights(const std::string& out) const {
    return slurp(at(out + "/final/model.safetensors"));
  }
  // Two runs with the same words, of which the second is resumed from its first checkpoint.
  void expect_resumed_bit_for_bit(const Words& words) const {
    SCOPED_TRACE(testing::PrintToString(words));
    ASSERT_EQ(run(small("whole", words)).code, 0) << slurp(at("stderr"));
    ASSERT_EQ(run(small("parts", words)).code, 0);
    const SafetensorsFile file(at("parts/step-00000003") / std::string(kOptimizerFile));
    EXPECT_EQ(file.header().metadata.at("optimizer"), "AdamW8bit");
    const auto* codes = file.find("model.layers.0.self_attn.q_proj.weight.exp_avg");
    ASSERT_NE(codes, nullptr);
    EXPECT_EQ(codes->type.name, "U8");
    fs::remove_all(at("parts/final"));
    fs::remove_all(at("parts/step-00000006"));
    Words again = words;
    again.push_back("--resume=true");
    const Outcome o = run(small("parts", again));
    ASSERT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"resumed from parts/step-00000003"});
    EXPECT_TRUE(weights("parts") == weights("whole"));
    fs::remove_all(at("parts"));
  }
};

TEST_F(Optimizers, AdamW8bitTrainsAndResumesBitForBit) {
  expect_resumed_bit_for_bit({"--optimizer", "AdamW8bit"});
  ASSERT_EQ(run(small("full", {})).code, 0);
  EXPECT_FALSE(weights("full") == weights("whole")) << "as if the moments were not rounded";
}

TEST_F(Optimizers, TheClassOfBitsandbytesIsTaken) {
  write("recipe.yaml",
        "optimizer:\n  class_path: bitsandbytes.optim.PagedAdamW8bit\n  init_args:\n"
        "    lr: 0.002\n    betas: [0.9, 0.95]\n    eps: 1e-7\n    weight_decay: 0.1\n");
  expect_resumed_bit_for_bit({"--config", "recipe.yaml"});
  const Outcome o = run(small("again", {"--config", "recipe.yaml"}));
  const std::string said = cuda_present()
                               ? "is in host memory; the GPU updates it"
                               : "optimizer: paged and offload have no effect on the CPU";
  expect_holds(o.err, {said});
  EXPECT_EQ(o.err.find(said), o.err.rfind(said)) << "said once";
  EXPECT_TRUE(weights("again") == weights("whole"));
  // Paged is where the state is, not what it is.
  ASSERT_EQ(run(small("plain", {"--optimizer=AdamW8bit", "--optimizer.lr=0.002",
                                "--optimizer.betas=[0.9,0.95]", "--optimizer.eps=1e-7",
                                "--optimizer.weight_decay=0.1"}))
                .code,
            0);
  EXPECT_TRUE(weights("plain") == weights("whole"));
}

TEST_F(Optimizers, AStateInOtherBitsIsRefused) {
  ASSERT_EQ(run(small("out", {"--optimizer", "AdamW8bit"})).code, 0);
  fs::remove_all(at("out/final"));
  expect_refused(4, small("out", {"--resume=true"}),
                 {"expected the moments of AdamW, found those of \"AdamW8bit\""});
}

TEST_F(Optimizers, ArgumentsThatHaveOneValueHereAreNamed) {
  expect_refused(2, small("out", {"--optimizer=AdamW8bit", "--optimizer.min_8bit_size=8192"}),
                 {"optimizer.min_8bit_size: is always 4096 in AdamW8bit; remove the key"});
  expect_refused(2, small("out", {"--optimizer=bnb.optim.AdamW8bits"}),
                 {"did you mean AdamW8bit?"});
}

}  // namespace
}  // namespace capstan::cli_test
