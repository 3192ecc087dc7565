// The demonstration, with a model so small and runs so short that it learns nothing.

#include "program.h"

namespace capstan::cli_test {
namespace {

Words tiny_demo(const Words& more = {}) {
  Words words = {"demo",
                 "--model.hidden_size=16",
                 "--model.intermediate_size=24",
                 "--model.num_hidden_layers=1",
                 "--model.num_attention_heads=2",
                 "--train.max_steps=3",
                 "--train.lr_warmup_steps=0"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Planned and measured of the whole model, then of the adapters, in the table that has both.
struct Row {
  std::string name;
  double bytes[4] = {};
};
Row memory_row(const std::string& out, const char* category) {
  Row r;
  std::istringstream row(out.substr(out.find(category, out.find("LoRA: planned"))));
  row >> r.name;
  std::string unit;
  for (double& n : r.bytes) {
    row >> n >> unit;
    n *= unit == "MiB" ? 0x1p20 : unit == "KiB" ? 0x1p10 : 1;
  }
  return r;
}

TEST_F(Cli, TheDemoComputesWithWhatItIsTold) {
  const Outcome o = run(tiny_demo({"--accelerator=cpu", "--train.max_steps=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* stage : {"out/demo", "out/demo-lora"})
    expect_holds(slurp(at(std::string(stage) + "/final/hyperparameters.yaml")),
                 {"accelerator: cpu"});
  expect_refused(2, tiny_demo({"--accelerator=tpu"}), {"accelerator: ", "tpu"});
}

TEST_F(Cli, TheDemoTrainsAModelAndAnAdapterThatCanBeAsked) {
  const Outcome o = run(tiny_demo({"--out_dir=shown/"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"before training: ", "after training:  ", "small tasks", "A new task: ",
                       // q and v of one block: (16 + 16) * 8 each.
                       "learn: 512 of ", "full: planned", "LoRA: planned",
                       "capstan generate shown/final ", "capstan generate shown-lora/final "});
  EXPECT_TRUE(fs::exists(at("shown-lora/final/adapter_model.safetensors")));
  EXPECT_FALSE(fs::exists(at("shown-lora/final/model.safetensors")));

  for (const char* category : {"weights", "gradients", "optimizer", "activations", "total"}) {
    const Row r = memory_row(o.out, category);
    ASSERT_EQ(r.name, category) << o.out;
    EXPECT_EQ(r.bytes[0], r.bytes[1]) << o.out;
    EXPECT_EQ(r.bytes[2], r.bytes[3]) << o.out;
    // The frozen weights and the adapters are there; the rest is less.
    if (r.name != "weights") {
      EXPECT_LT(r.bytes[2], r.bytes[0]) << o.out;
    }
  }

  // The command that it shows at its end.
  const std::string shown = o.out.substr(o.out.rfind("--prompt $'") + 11);
  const Outcome asked = run({"generate", "shown-lora/final", "--temperature", "0", "--prompt",
                             shown.substr(0, shown.find("\\n'")) + "\n"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  expect_holds(asked.out, {"Mirror: "});
}

TEST_F(Cli, ASignalEndsTheDemoInEitherStage) {
  for (const char* stage : {"out/demo", "out/demo-lora"}) {
    const pid_t pid = start(tiny_demo({"--train.max_steps=200", "--train.global_batch_size=256"}));
    for (int i = 0; i < 3000 && !fs::exists(at(stage) / "logs"); ++i) ::usleep(10'000);
    ::usleep(20'000);  // now it trains
    ASSERT_EQ(::kill(pid, SIGTERM), 0);
    const Outcome o = finish(pid);
    EXPECT_EQ(o.code, 128 + SIGTERM) << o.err;
    expect_holds(o.err, {"interrupted after step ", " of 200"});
    EXPECT_FALSE(fs::exists(at(stage) / "final"));
    fs::remove_all(at("out"));
  }
}

}  // namespace
}  // namespace capstan::cli_test
