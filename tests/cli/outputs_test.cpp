// What commands write where their user says: nothing that is there already is lost.

#include "finetune_program.h"

namespace capstan::cli_test {
namespace {

class Outputs : public Finetune {
 protected:
  std::vector<std::string> files_below(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(at(name)))
      files.push_back(entry.path().lexically_relative(at(name)).string() + "\n" +
                      (entry.is_directory() ? "" : slurp(entry.path())));
    std::sort(files.begin(), files.end());
    return files;
  }
};

TEST_F(Outputs, AFileOfAnotherKindIsNotReplaced) {
  write("r.yaml", "model_name: TinyLlama-1.1B\n");
  const std::string data = slurp(at("data.jsonl"));
  const Words plan = {"plan", "pretrain", "--config=r.yaml", "--train.max_seq_length=64"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refused(2, with(plan, {"--html=r.yaml"}),
                 {"--html: r.yaml exists and is not a plan's page"});
  expect_refused(2, with(plan, {"--trace=r.yaml"}),
                 {"--trace: r.yaml exists and is not a timeline"});
  expect_refused(2, with(plan, {"--html=x", "--trace=./x"}),
                 {"--trace: ./x is the file of --html"});
  expect_refused(2, finetune({"--log.trace=data.jsonl"}), {"log.trace: data.jsonl exists"});
  expect_refused(2, {"bench", "--quick", "--out=data.jsonl"},
                 {"--out: data.jsonl exists and is not a calibration"});
  expect_refused(2, {"doctor", "--report=data.jsonl"},
                 {"--report: data.jsonl exists and is not a bug report"});
  EXPECT_EQ(slurp(at("r.yaml")), "model_name: TinyLlama-1.1B\n");
  EXPECT_EQ(slurp(at("data.jsonl")), data);
  EXPECT_FALSE(fs::exists(at("out/final")));
  // Its own are, each by its kind.
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(run(with(plan, {"--gpu=a100-80-sxm", "--html=page.html", "--trace=t.json"})).code, 0);
  expect_refused(2, with(plan, {"--gpu=a100-80-sxm", "--html=t.json"}), {"t.json exists"});
  EXPECT_EQ(run(finetune({"--log.trace=t.json", "--log.trace_step=1"})).code, 0);
}

TEST_F(Outputs, ARunRefusesAFolderWithOtherThings) {
  for (const char* name :
       {"report.html", "loss.svg", "final/thesis.txt", "step-000004/photo.jpg", "best"}) {
    SCOPED_TRACE(name);
    fs::remove_all(at("out"));
    write(std::string("out/") + name, "years of work");
    expect_refused(2, finetune(), {"out_dir: out/", "so it is not replaced"});
    EXPECT_EQ(slurp(at(std::string("out/") + name)), "years of work");
  }
}

TEST_F(Outputs, AModelInTheWayIsMovedAside) {
  ASSERT_EQ(run(finetune()).code, 0);
  const auto before = files_below("out/final");
  const Outcome converted = run({"convert", "checkpoints/tiny/final", "out/final", "--dtype=bf16"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  expect_holds(converted.err, {"moved the model that was out/final to ", "out/previous-1"});
  EXPECT_EQ(files_below("out/previous-1/final"), before);

  Words adapt = finetune({"--out_dir=adapted"});
  adapt[0] = "finetune_lora";
  ASSERT_EQ(run(adapt).code, 0);
  const auto kept = files_below("out/final");
  const Outcome merged = run({"merge_lora", "adapted/final", "--out_dir=out/final/"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_EQ(files_below("out/previous-2/final"), kept);
  EXPECT_TRUE(fs::exists(at("out/final/merge_certificate.json")));
}

// The demo overwrites its own folder alone.
TEST_F(Outputs, TheDemoMovesWhatIsNotItsOwn) {
  ASSERT_EQ(run(finetune()).code, 0);
  const auto before = files_below("out/final");
  const Outcome o =
      run({"demo", "--out_dir=out", "--model.hidden_size=16", "--model.intermediate_size=24",
           "--model.num_hidden_layers=1", "--model.num_attention_heads=2", "--train.max_steps=2",
           "--train.lr_warmup_steps=0"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(files_below("out/previous-1/final"), before);
}

// Whatever is in a path, a shell reads the words that were given.
TEST_F(Outputs, CommandsCanBePasted) {
  const auto expect_pasted = [&](const std::string& command, Words words) {
    const Outcome o = finish(start_program("/bin/sh", {"sh", "-c", "printf '%s\\n' " + command}));
    std::string expected = "capstan\n";
    for (const std::string& word : words) expected += word + "\n";
    EXPECT_EQ(o.out, expected);
  };
  const std::string recipe = "it's $(touch pasted) `touch pasted`;.yaml";
  write(recipe, "model_name: TinyLlama-1.1B\n");
  const Words plan = {"plan",
                      "pretrain",
                      "--config=" + recipe,
                      "--train.max_seq_length=64",
                      "--gpu=a100-80-sxm",
                      "--html=a \"page\".html",
                      "--json"};
  const Outcome planned = run(plan);
  ASSERT_EQ(planned.code, 0) << planned.err;
  expect_pasted(nlohmann::json::parse(planned.out)["command"], plan);
  const Words words =
      finetune({"--log.trace=t.json", "--log.trace_step=1", "--out_dir=an $(touch pasted) 'out'"});
  ASSERT_EQ(run(words).code, 0);
  expect_pasted(nlohmann::json::parse(slurp(at("t.json")))["otherData"]["command"], words);
  EXPECT_FALSE(fs::exists(at("pasted")));
}

}  // namespace
}  // namespace capstan::cli_test
