// capstan plan --machines and --compare: several machines for a run, several settings on a machine.

#include "base/wrapped.h"
#include "plan_program.h"

namespace capstan::cli_test {
namespace {

class PlanMachines : public Plan {
 protected:
  json answers(Words words, int code) const {
    words.insert(words.begin(), "plan");
    words.emplace_back("--json");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err << o.out;
    return json::parse(o.out, nullptr, false);
  }
  Outcome text(Words words) const {
    words.insert(words.begin(), "plan");
    const Outcome o = run(words);
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);)
      if (line.find("capstan ") == std::string::npos) {
        EXPECT_LE(columns_of(line), 80) << line;
        EXPECT_FALSE(line.ends_with(' ')) << line;
      }
    return o;
  }
  const Words tuned = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512",
                       "--train.max_steps=10"};
};

TEST_F(PlanMachines, TheFastestComesFirstWithItsCommand) {
  Words words = tuned;
  words.emplace_back("--machines=1xt4,2xa100-40,rtx4090");
  const json out = answers(words, 0);
  const json& rows = out["machines"];
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["gpu"], "a100-40-pcie");
  EXPECT_EQ(rows[0]["devices"], 2);
  EXPECT_EQ(rows[1]["gpu"], "rtx4090");
  EXPECT_EQ(rows[2]["gpu"], "t4");
  EXPECT_GT(rows[0]["tokens_per_second"], rows[1]["tokens_per_second"]);
  EXPECT_NEAR(rows[0]["run_seconds"].get<double>(), 10 * rows[0]["step_seconds"].get<double>(),
              1e-9);
  EXPECT_EQ(rows[2]["fits"], false);
  EXPECT_FALSE(rows[2]["fits_with"].empty());
  // What it prints to type is a plan that fits, as fast and as large.
  std::istringstream parts(rows[0]["command"].get<std::string>());
  Words again = {"--gpu=a100-40-pcie"};
  for (std::string word; parts >> word;)
    if (word != "capstan") again.push_back(word);
  const json planned = plan(again, 0);
  EXPECT_EQ(planned["time"]["step_seconds"], rows[0]["step_seconds"]);
  EXPECT_EQ(planned["memory"]["peak_bytes"], rows[0]["peak_bytes"]);
  const Outcome shown = text(words);
  EXPECT_EQ(shown.code, 0);
  expect_holds(unwrapped(shown.out), {"2 × a100-40-pcie",
                                      "1 × t4 does not fit: each GPU needs at "
                                      "least ",
                                      "would fit with ", "on the first: capstan "});
  expect_holds(unwrapped(shown.err), {"a100-40 is taken for a100-40-pcie; others are a100-40-sxm"});
}

TEST_F(PlanMachines, AreWhatPeopleWrite) {
  const auto rows = [&](const char* machines) {
    Words words = tuned;
    words.push_back(std::string("--machines=") + machines);
    return answers(words, 0)["machines"];
  };
  const json eight = rows("8xa100-40");
  EXPECT_EQ(eight[0]["gpu"], "a100-40-sxm") << "machines with eight usually have a link";
  EXPECT_EQ(eight[0]["devices"], 8);
  EXPECT_FALSE(eight[0].contains("between_machines"));
  const json two = rows("2x4xh100-sxm");
  EXPECT_EQ(two[0]["machines"], 2);
  EXPECT_EQ(two[0]["devices"], 4);
  EXPECT_EQ(two[0]["between_machines"], 50e9);
  EXPECT_EQ(two[0]["keys"]["num_nodes"], "2");
  EXPECT_NE(two[0]["command"].get<std::string>().find("mpirun -n 8 "), std::string::npos);
}

TEST_F(PlanMachines, NoneThatFitsIsExitCode3) {
  const json out = answers(
      {"finetune_full", "Llama-3.1-8B", "--machines=t4,a10", "--train.max_seq_length=512"}, 3);
  EXPECT_EQ(out["fits"], false);
  for (const json& row : out["machines"])
    for (const json& change : row["fits_with"])
      EXPECT_FALSE(change.get<std::string>().starts_with("devices")) << change;
}

TEST_F(PlanMachines, RefuseWhatIsAnotherQuestion) {
  const auto refused = [&](const Words& more, const Words& parts) {
    Words words = tuned;
    words.insert(words.begin(), "plan");
    words.insert(words.end(), more.begin(), more.end());
    expect_refused(2, words, parts);
  };
  refused({"--machines=8xt5"}, {"no GPU 't5' is known", "Known are v100-16"});
  refused({"--machines=0xt4"}, {"0xt4: expected up to "});
  refused({"--machines=999999999999xt4"}, {"no GPU '999999999999xt4' is known"});
  refused({"--machines=t4", "--gpu=a10"}, {"--machines asks about several machines, and --gpu"});
  refused({"--machines=t4", "--gpus=2"}, {"--machines says how many GPUs there are"});
  refused({"--machines=t4", "--accelerator=cpu"}, {"the accelerator is cpu"});
  refused({"--machines=t4", "--deadline=3h"}, {"--deadline is of one plan"});
  refused({"--machines=t4", "--compare"}, {"--compare asks about several settings"});
}

TEST_F(PlanMachines, SettingsAreComparedSideBySide) {
  write("true.yaml", "precision: bf16-true\n");
  write("mixed.yaml", "precision: bf16-mixed\n");
  Words words = tuned;
  words.insert(words.begin(), {"--compare", "true.yaml", "mixed.yaml"});
  words.emplace_back("--gpu=a10");
  const json out = answers(words, 0);
  const json& rows = out["settings"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["name"], "true.yaml");
  EXPECT_EQ(rows[0]["fits"], true);
  EXPECT_EQ(rows[1]["fits"], false) << "18 bytes a parameter are more than 24 GB";
  // Each is the plan of its recipe alone.
  Words alone = tuned;
  alone.insert(alone.end(), {"true.yaml", "--gpu=a10"});
  const json planned = plan(alone, 0);
  EXPECT_EQ(rows[0]["step_seconds"], planned["time"]["step_seconds"]);
  EXPECT_EQ(rows[0]["run_seconds"], planned["time"]["run_seconds"]);
  EXPECT_EQ(rows[0]["peak_bytes"], planned["memory"]["peak_bytes"]);
  const Outcome shown = text(words);
  EXPECT_EQ(shown.code, 0);
  expect_holds(unwrapped(shown.out), {"*: the fastest that fits", "true.yaml: precision bf16-true",
                                      "mixed.yaml: precision bf16-mixed", "all: model Llama-3.2-1B",
                                      "does not fit: needs ", "times by the data sheet of a10"});
  // Models with keys that hold for all, in one command.
  const json models = answers({"--compare", "finetune", "Llama-3.2-1B", "TinyLlama-1.1B",
                               "true.yaml", "--gpu=a10", "--train.max_seq_length=512"},
                              0);
  EXPECT_EQ(models["settings"][1]["setting"]["model"], "TinyLlama-1.1B");
  EXPECT_EQ(models["settings"][1]["setting"]["precision"], "bf16-true");
}

TEST_F(PlanMachines, ComparingNeedsTwoOfAKind) {
  write("a.yaml", "precision: bf16-true\n");
  write("b.yaml", "precision: bf16\n");
  expect_refused(2, {"plan", "--compare", "a.yaml", "Llama-3.2-1B", "--gpu=a10"},
                 {"--compare needs two or more"});
  expect_refused(
      2, {"plan", "--compare", "a.yaml", "b.yaml", "Llama-3.2-1B", "TinyLlama-1.1B", "--gpu=a10"},
      {"several recipes or several models, not both"});
  expect_refused(2, {"plan", "--compare", "a.yaml", "b.yaml", "Llama-3.2-1B", "--gpu=a10"},
                 {"b.yaml: b.yaml:1:", "precision"});
  expect_refused(2, {"plan", "--compare", "a.yaml", "b.yaml", "--search"}, {"--search is of one"});
}

}  // namespace
}  // namespace capstan::cli_test
