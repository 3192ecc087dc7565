// capstan plan --deadline, --budget, --html, --gpus, --allow: what it answers, end to end.

#include <algorithm>

#include "base/wrapped.h"
#include "plan_program.h"

namespace capstan::cli_test {
namespace {

constexpr const char* kPrices =
    "date: 2026-08-03\norigin: a test\ninstances:\n"
    "  a10: {1: 1}\n  a100-40-sxm: {1: 2}\n  h100-sxm: {1: 4, 2: 8}\n  b200: {1: 7}\n"
    "  a6000: {1: 1}\n  v100-16: {1: 1}\n  a100-40-pcie: {1: 2}\n  a100-80-sxm: {1: 3}\n"
    "  h100-pcie: {1: 3}\n  gh200-96: {1: 3}\n";

class PlanAnswers : public Plan {
 protected:
  PlanAnswers() {
    write("prices.yaml", kPrices);
    ::setenv("CAPSTAN_PRICES", at("prices.yaml").c_str(), 1);
    std::string records = "[";
    for (int i = 0; i < 200; ++i)
      records += fmt::format("{}{{\"instruction\": \"{}\", \"output\": \"{}\"}}", i == 0 ? "" : ",",
                             std::string(40, 'a'), std::string(static_cast<size_t>(i + 100), 'b'));
    write("my.json", records + "]");
  }
  ~PlanAnswers() override { ::unsetenv("CAPSTAN_PRICES"); }

  static Words tuned(const Words& more) {
    Words words = {"finetune", "Llama-3.2-1B", "--data.json_path=my.json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The words of a command as a shell has them; these need no quotes.
  static Words words_of(const std::string& command) {
    std::istringstream text(command);
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    return words;
  }
};

TEST_F(PlanAnswers, ADeadlineChoosesTheCheapestMachineThatMeetsIt) {
  const json found = plan(tuned({"--deadline=36h", "--budget=200"}), 0);
  const json& offers = found["offers"];
  ASSERT_GT(offers.size(), 5U);
  const auto first =
      std::find_if(offers.begin(), offers.end(), [](const json& o) { return o["meets"] == true; });
  ASSERT_NE(first, offers.end());
  EXPECT_EQ(found["run"]["gpu"], (*first)["gpu"]);
  EXPECT_EQ(found["run"]["gpus"], (*first)["gpus"]);
  // The plan and the row of its machine are one.
  for (const char* key : {"step_seconds", "run_seconds"}) {
    const double planned = found["time"][key], offered = (*first)[key];
    EXPECT_NEAR(planned, offered, 1e-9 * planned) << key;
  }
  EXPECT_EQ(found["cost"]["dollars"], (*first)["dollars"]);
  EXPECT_EQ(found["memory"]["peak_bytes"], (*first)["peak_bytes"]);
  for (const json& o : offers) {
    EXPECT_GT(o["run_seconds"], 0);
    EXPECT_LE(o["low_dollars"], o["dollars"]);  // paid by the second
    EXPECT_LE(o["dollars"], o["high_dollars"]);
  }
}

// What it prints to type, without the launcher, is a plan that fits.
TEST_F(PlanAnswers, TheCommandIsOneThatPlansTheSame) {
  Words words = tuned({"--deadline=36h", "--devices=2"});
  words.insert(words.begin(), "plan");
  expect_refused(2, words, {"--deadline chooses how many GPUs", "--gpus", "--gpu"});
  words.pop_back();
  const Outcome text = run(words);
  ASSERT_EQ(text.code, 0) << text.err;
  const size_t at = text.out.find("\non such a machine:\n");
  ASSERT_NE(at, std::string::npos) << text.out;
  Words command = words_of(text.out.substr(text.out.find("capstan ", at)));
  ASSERT_GT(command.size(), 3U);
  command.erase(command.begin());
  const json chosen = plan(tuned({"--deadline=36h"}), 0);
  command.push_back("--gpu=" + chosen["run"]["gpu"].get<std::string>());
  const json again = plan(command, 0);
  EXPECT_EQ(again["memory"], chosen["memory"]);
  EXPECT_EQ(again["run"], chosen["run"]);
  EXPECT_EQ(again["time"]["step_seconds"], chosen["time"]["step_seconds"]);
}

// As those of the command line; but LitGPT writes one device and one node into all of its recipes.
TEST_F(PlanAnswers, ADeadlineDropsNoNumberOfGpusOfARecipe) {
  const auto words = [&](const std::string& keys) {
    write("r.yaml", "train.max_seq_length: 512\n" + keys);
    return tuned({"--config=r.yaml", "--deadline=36h"});
  };
  const auto refused = [&](const std::string& keys, const Words& parts) {
    Words all = words(keys);
    all.insert(all.begin(), "plan");
    expect_refused(2, all, parts);
  };
  refused("devices: 4\n", {"--deadline chooses how many GPUs", "devices: 4 (r.yaml:2:1)", "--gpu"});
  refused("num_nodes: 2\n", {"num_nodes: 2 (r.yaml:2:1)"});
  plan(words("devices: auto\nnum_nodes: 1\n"), 0);
  // What the fastest machine has instead of one GPU is said.
  Words alone = words("devices: 1\n");
  alone.insert(alone.begin(), "plan");
  alone.back() = "--deadline=1s";
  alone.emplace_back("--train.epochs=1000");
  const Outcome o = run(alone);
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(unwrapped(o.err), {"devices: 1 (r.yaml:2:1): --deadline chose "});
}

TEST_F(PlanAnswers, ANamedGpuIsToldWhetherItMeetsTheWish) {
  const auto answer = [&](const Words& more) {
    Words words = tuned(more);
    words.insert(words.begin(), "plan");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string before = "this plan, on the machine that was named: ";
    const size_t at = o.out.find(before);
    return at == std::string::npos ? o.out : o.out.substr(at + before.size(), 2);
  };
  EXPECT_EQ(answer({"--gpu=h100-sxm", "--deadline=36h"}), "ye");
  EXPECT_EQ(answer({"--gpu=h100-sxm", "--deadline=0.01s"}), "no");
  EXPECT_EQ(answer({"--gpu=h100-sxm", "--budget=0.01", "--train.epochs=1000"}), "no");
  EXPECT_EQ(answer({"--gpu=rtx4090", "--budget=1000"}), "no") << "it has no price";
}

// Without data, the tokens say how many steps: 8 samples of 512 tokens each, and a rest.
TEST_F(PlanAnswers, TokensAreStepsOfFullSamples) {
  const Words words = {"pretrain",
                       "Llama-3.2-1B",
                       "--gpu=h100-sxm",
                       "--train.max_seq_length=512",
                       "--train.global_batch_size=8",
                       "--train.micro_batch_size=2"};
  const auto steps = [&](const char* length) {
    Words all = words;
    all.emplace_back(length);
    return plan(all, 0)["steps"];
  };
  EXPECT_EQ(steps("--train.max_tokens=409600"), 100);
  EXPECT_EQ(steps("--train.max_tokens=409601"), 101);
  EXPECT_EQ(steps("--train.max_steps=7"), 7);
}

// LitGPT's default is three trillion tokens; nobody has a disk for a checkpoint every 1000 steps.
TEST_F(PlanAnswers, TheDefaultLengthOfPretrainingIsSaidToBeOne) {
  const Words words = {"pretrain", "Llama-3.2-1B", "--gpu=h100-sxm", "--train.max_seq_length=2048"};
  const auto text = [&](const Words& more) {
    Words all = words;
    all.insert(all.begin(), "plan");
    all.insert(all.end(), more.begin(), more.end());
    return unwrapped(run(all).out);
  };
  const auto needs = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return plan(all, 0);
  };
  expect_holds(text({}), {"nothing says how long to train: ", "LitGPT's default of 3e+12 tokens",
                          "--train.max_tokens or --train.max_steps", "2 checkpoints",
                          "each further checkpoint, one every 1000 steps, takes ",
                          "train.keep_last says how many are kept"});
  const json unsaid = needs({});
  EXPECT_EQ(unsaid["length_is_default"], true);
  EXPECT_EQ(unsaid["needs"]["checkpoints"], 2);
  EXPECT_LT(unsaid["needs"]["disk_bytes"], int64_t{100} << 30);
  const json kept = needs({"--train.keep_last=5"});
  EXPECT_EQ(kept["needs"]["checkpoints"], 6);
  // A length that was asked for is counted as the run keeps it, and what is enough beside it.
  const json asked = needs({"--train.max_steps=100001"});
  EXPECT_FALSE(asked.contains("length_is_default"));
  EXPECT_EQ(asked["needs"]["checkpoints"], 101);
  EXPECT_LT(asked["needs"]["disk_bytes_of_last"], asked["needs"]["disk_bytes"]);
  const std::string long_run = text({"--train.max_steps=100001"});
  expect_holds(long_run, {"101 checkpoints", "with --train.keep_last 3 it needs "});
  EXPECT_EQ(long_run.find("nothing says how long"), std::string::npos);
  EXPECT_FALSE(needs({"--train.max_tokens=3000000000000"}).contains("length_is_default"));
}

// Machines with H100 usually have 50 GB/s for each GPU, rented ones 25 Gb/s for eight of them: two
// answers for 16 GPUs, each with its network.
TEST_F(PlanAnswers, SaysWhatJoinsTheMachinesOfEachAnswer) {
  write("prices.yaml", "date: 2026-08-03\norigin: a test\ninstances:\n  h100-sxm: {8: 32}\n");
  Words words = {"finetune_full",
                 "Llama-3.1-8B",
                 "--gpu=h100-sxm",
                 "--gpus=8",
                 "--nodes=2",
                 "--train.max_seq_length=2048",
                 "--html=plan.html",
                 "--train.max_steps=100",
                 "--train.global_batch_size=32"};
  const json out = plan(words, 0);
  EXPECT_EQ(out["run"]["between_machines"], 50e9);
  const auto between = [&](const char* table) {
    for (const json& row : out[table])
      if (row["gpus"] == 16) return row.value("between_machines", 0.0);
    return -1.0;
  };
  EXPECT_EQ(between("scaling"), 50e9);
  EXPECT_NEAR(between("offers"), 25e9 / 8 / 8, 1);
  for (const char* table : {"scaling", "offers"})
    for (const json& row : out[table]) {
      EXPECT_EQ(row.contains("between_machines"), row["machines"] > 1) << row;
    }
  words.insert(words.begin(), "plan");
  expect_holds(unwrapped(run(words).out),
               {"2 machines: 50 GB/s for each GPU between them (as machines with h100-sxm usually "
                "have; --network says otherwise)",
                "several machines: 50 GB/s for each GPU between them",
                "several machines: joined by 25 Gb/s of each, which its GPUs share (general"});
  expect_holds(slurp(at("plan.html")), {"'between machines'"});
}

// What is needed and what is usual stand side by side, and what a model takes that is used.
TEST_F(PlanAnswers, ShowsTheNeedBesideTheCushion) {
  const Words words = {"finetune",
                       "Llama-3.1-70B",
                       "--gpu=h100-sxm",
                       "--gpus=8",
                       "--train.max_seq_length=512",
                       "--train.max_steps=100"};
  const json needs = plan(words, 0)["needs"];
  EXPECT_NEAR(needs["disk_bytes"].get<double>(), needs["stored_bytes"].get<double>() / 0.8, 2);
  EXPECT_LT(needs["planned_host_bytes"], needs["host_memory_bytes"]);
  EXPECT_EQ(needs["copy_bytes"], 2 * int64_t{70'553'706'496});
  EXPECT_EQ(needs["gpus_for_one_copy"], 2);
  Words all = words;
  all.insert(all.begin(), "plan");
  expect_holds(unwrapped(run(all).out),
               {"of disk: ", " for 1 checkpoint, ", "and a fifth free", "each host: 640 GiB",
                "the run takes ", "as much as the GPUs have is usual",
                "to use it, 2 bytes a parameter are 141 GB: one copy takes 2 GPUs"});
}

TEST_F(PlanAnswers, HostMemoryIsThatOfEachGpu) {
  const auto verdict = [&](const char* gpus, const char* host, int code) {
    return plan({"finetune_full", "Llama-3.2-1B", "--gpu=a10", gpus, host,
                 "--strategy=zero3_offload", "--train.max_seq_length=512"},
                code)["verdict"]
        .get<std::string>();
  };
  expect_holds(verdict("--gpus=2", "--host-memory=1TiB", 0),
               {" of 512 GiB of host memory for each GPU"});
  expect_holds(verdict("--gpus=2", "--host-memory=1GiB", 3),
               {" of host memory for each GPU, 512 MiB free"});
  const std::string alone = plan({"finetune_full", "Llama-3.2-1B", "--gpu=a10",
                                  "--strategy=offload", "--train.max_seq_length=512"},
                                 0)["verdict"];
  EXPECT_EQ(alone.find("each"), std::string::npos) << alone;
}

TEST_F(PlanAnswers, WhereNothingMeetsTheWishItSaysSoAndComesNear) {
  const auto nearest = [&](const std::string& wish, const char* which) {
    Words words = tuned({wish, "--train.epochs=1000"});
    words.insert(words.begin(), "plan");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(unwrapped(o.out), {"none of ", fmt::format("this plan is for the {} of", which)});
    expect_holds(o.err, {"no machine that can be rented meets it"});
    const json out = plan(tuned({wish, "--train.epochs=1000"}), 0);
    for (const json& offer : out["offers"]) EXPECT_EQ(offer["meets"], false);
    return out;
  };
  const json cheapest = nearest("--budget=0.01", "cheapest");
  EXPECT_EQ(cheapest["cost"]["dollars"], cheapest["offers"][0]["dollars"]);
  const json fastest = nearest("--deadline=0.01s", "fastest");
  for (const json& offer : fastest["offers"])
    EXPECT_GE(offer["run_seconds"], (1 - 1e-9) * fastest["time"]["run_seconds"].get<double>());
}

TEST_F(PlanAnswers, ADeadlineNeedsStepsAndAChoice) {
  const auto refused = [&](const Words& more, const Words& parts) {
    Words words = tuned(more);
    words.insert(words.begin(), "plan");
    expect_refused(2, words, parts);
  };
  refused({"--deadline", ""}, {"expected a time from now (36h, 3 days)", "found ''"});
  refused({"--deadline=soon"}, {"expected a time from now (36h, 3 days)", "found 'soon'"});
  refused({"--deadline=2020-01-01"}, {"'2020-01-01' has passed", "give a later one"});
  refused({"--budget=0"}, {"--budget", "found '0'"});
  refused({"--budget=nan"}, {"--budget", "found 'nan'"});
  refused({"--deadline=36h", "--accelerator=cpu"}, {"GPUs that can be rented", "cpu"});
  refused({"--deadline=36h", "--memory=8GiB"}, {"--memory is of one", "--gpu"});
  refused({"--budget=9", "--calibration=x.json"}, {"--calibration is of one", "--gpu"});
  refused({"--budget=9", "--search"}, {"--budget chooses a machine", "--search"});
  refused({"--deadline=36h", "--network=10"}, {"--network", "also give --gpu"});
  expect_refused(2, {"plan", "finetune", "Llama-3.2-1B", "--deadline=36h"},
                 {"--deadline needs the number of steps", "--train.max_steps"});
  EXPECT_EQ(plan({"finetune", "Llama-3.2-1B", "--deadline=36h", "--train.max_steps=100",
                  "--train.max_seq_length=512"},
                 0)["steps"],
            100);
}

// What the options say of a GPU is true of more and of fewer of them, too.
TEST_F(PlanAnswers, ChangesAreOnTheMachinesThatWereStated) {
  const auto first_of_gpus = [&](const char* memory) {
    const json out = plan({"finetune_full", "Llama-3.1-8B", "--gpu=h100-sxm", memory,
                           "--train.max_seq_length=512", "--train.global_batch_size=64"},
                          3);
    for (const json& change : out["fits_with"])
      if (const std::string what = change["change"];
          what.starts_with("devices: ") && what.ends_with(")"))  // without recomputation
        return what;
    return std::string("none");
  };
  EXPECT_EQ(first_of_gpus("--memory=80GiB").substr(0, 11), "devices: 2 ");
  EXPECT_EQ(first_of_gpus("--memory=20GiB"), "devices: 8, num_nodes: 2 (zero3)");
}

// No GPUs are enough for all activations of a large model; with recomputation some are.
TEST_F(PlanAnswers, MoreGpusAreAChangeOfLargeModelsToo) {
  const json out = plan({"finetune_full", "Llama-3.1-70B", "--gpu=h100-sxm", "--gpus=8",
                         "--train.max_seq_length=4096", "--train.global_batch_size=64"},
                        3);
  std::vector<std::string> changes;
  for (const json& change : out["fits_with"]) changes.push_back(change["change"]);
  EXPECT_EQ(std::count(changes.begin(), changes.end(),
                       "devices: 8, num_nodes: 4 with activations: block"),
            1);
}

TEST_F(PlanAnswers, WarnsOfMachinesWithMoreGpusThanUsual) {
  const auto told = [&](const char* devices, const char* nodes) {
    return unwrapped(
        run({"plan", "finetune", "Llama-3.2-1B", "--gpu=h100-sxm", devices, nodes}).err);
  };
  expect_holds(told("--gpus=16", "--nodes=2"), {"16 GPUs are planned as on one machine",
                                                "most machines have 8: --gpus 8 --nodes 4"});
  EXPECT_EQ(told("--gpus=8", "--nodes=2").find("planned as on one"), std::string::npos);
}

// Neither the range nor the factor is of runs that there were not.
TEST_F(PlanAnswers, CorrectsByRunsAloneThatThereWere) {
  Words words = tuned({"--gpu=h100-sxm", "--correct"});
  words.insert(words.begin(), "plan");
  expect_holds(unwrapped(run(words).out),
               {"--correct: nothing to correct times by", "and 3 are needed"});
  words.emplace_back("--search");
  expect_refused(2, words, {"--correct is by the runs of one layout", "--search"});
}

TEST_F(PlanAnswers, SaysWhatARunCostsOrThatNobodyKnows) {
  const auto text = [&](const char* gpu) {
    Words words = tuned({std::string("--gpu=") + gpu});
    words.insert(words.begin(), "plan");
    return unwrapped(run(words).out);
  };
  expect_holds(text("h100-sxm"), {"rented by the hour it costs about "});
  const std::string unknown = text("l4");
  expect_holds(unknown, {"what it costs is unknown: the prices have no l4", "$CAPSTAN_PRICES"});
  EXPECT_EQ(unknown.find("rented by the hour"), std::string::npos);
  const auto of_two = [&](const char* gpu, const Words& more) {
    Words words = tuned({std::string("--gpu=") + gpu, "--nodes=2"});
    words.insert(words.begin(), "plan");
    words.insert(words.end(), more.begin(), more.end());
    return unwrapped(run(words).out);
  };
  expect_holds(of_two("h100-sxm", {}), {"what it costs to rent is not said", "--network"});
  expect_holds(of_two("h100-sxm", {"--network=3"}), {"rented by the hour it costs about "});
  expect_holds(of_two("l4", {}), {"what it costs is unknown: the prices have no l4"});
}

TEST_F(PlanAnswers, DataThatCannotBeReadAreRefused) {
  write("empty.json", "[]");
  write("broken.json", "[{\"instruction\": ");
  const auto refused = [&](const char* file, const Words& parts) {
    expect_refused(4,
                   {"plan", "finetune", "Llama-3.2-1B", "--deadline=36h",
                    std::string("--data.json_path=") + file},
                   parts);
  };
  refused("empty.json", {"empty.json", "contains no record"});
  refused("broken.json", {"broken.json:1:", "not valid JSON"});
  refused("none.json", {"none.json", "no such file"});
}

TEST_F(PlanAnswers, WhatFitsOnNoMachineIsRefused) {
  expect_refused(3,
                 {"plan", "finetune_full", "Llama-3.1-405B", "--deadline=36h",
                  "--train.max_steps=3", "--train.max_seq_length=512"},
                 {"does not fit on any machine", "need less"});
}

// A machine of the user's own prices and catalogue, and a file that is not there.
TEST_F(PlanAnswers, TakesThePricesAndGpusOfTheUser) {
  write("gpus.yaml",
        "date: 2026-01-01\norigin: mine\ngpus:\n"
        "  mine: {in_name: Mine, capability: 9.0, memory: 300, memory_bandwidth: 9000, f32: 67, "
        "tf32: 0, narrow: 3000, fp8: 0, power: 700, link: 900}\n");
  write("prices.yaml", std::string(kPrices) + "  mine: {1: 0.01}\n");
  ::setenv("CAPSTAN_CATALOGUE", at("gpus.yaml").c_str(), 1);
  EXPECT_EQ(plan(tuned({"--budget=100"}), 0)["run"]["gpu"], "mine");
  ::unsetenv("CAPSTAN_CATALOGUE");
  Words words = tuned({"--budget=100"});
  words.insert(words.begin(), "plan");
  expect_holds(unwrapped(run(words).err), {"prices: 'mine' is no GPU of the catalogue"});
  ::setenv("CAPSTAN_PRICES", "none.yaml", 1);
  expect_refused(4, words, {"none.yaml", "cannot open"});
}

TEST_F(PlanAnswers, APageHasTheNumbersOfItsPlan) {
  const Words words = tuned({"--gpu=h100-sxm", "--gpus=2"});
  Words page = words;
  page.insert(page.begin(), "plan");
  page.insert(page.end(), {"--html=plan.html", "--json"});
  const Outcome o = run(page);
  ASSERT_EQ(o.code, 0) << o.err;
  const json printed = json::parse(o.out), alone = plan(words, 0);
  const std::string html = slurp(at("plan.html"));
  for (const char* key : {"fits", "verdict", "run", "model", "steps", "batch", "time", "cost"})
    EXPECT_EQ(printed[key], alone[key]) << key;
  for (const char* key : {"offers", "scaling", "sensitivity", "timeline", "sources"})
    EXPECT_FALSE(printed[key].empty()) << key;
  const std::string begin = "<script type=\"application/json\" id=\"plan\">";
  const size_t json_at = html.find(begin) + begin.size();
  ASSERT_NE(html.find(begin), std::string::npos);
  const json inside =
      json::parse(html.substr(json_at, html.find("</script>", json_at) - json_at), nullptr, false);
  ASSERT_FALSE(inside.is_discarded());
  for (const auto& [key, value] : printed.items()) EXPECT_EQ(inside[key], value) << key;
  double parts = 0;
  for (const json& part : printed["time"]["by_kind"]) parts += part["seconds"].get<double>();
  const double step = printed["time"]["step_seconds"];
  EXPECT_NEAR(parts, step, 0.01 * step);
  EXPECT_EQ(printed["scaling"][0]["efficiency"], 1.0);
}

TEST_F(PlanAnswers, GpusAndNodesAreDevicesAndMachines) {
  const auto run_of = [&](const Words& more) { return plan(tuned(more), 0)["run"]; };
  const json run = run_of({"--gpu=h100-sxm", "--gpus=2", "--nodes=3"});
  EXPECT_EQ(run, run_of({"--gpu=h100-sxm", "--devices=2", "--num_nodes=3"}));
  EXPECT_EQ(run, run_of({"--gpu=h100-sxm", "--gpus", "2", "--nodes", "3"}));
  EXPECT_EQ(run["gpus"], 6);
  EXPECT_EQ(run["machines"], 3);
  expect_refused(2, {"plan", "Llama-3.2-1B", "--gpu=h100-sxm", "--gpus=three"}, {"'three'"});
  expect_refused(2,
                 {"plan", "Llama-3.2-1B", "--gpu=h100-sxm", "--gpus=3", "--tensor_parallel=2",
                  "--pipeline_parallel=2"},
                 {"need 4 ranks or a multiple of it, but there are 3"});
}

TEST_F(PlanAnswers, ASearchMayChangeWhatIsAllowed) {
  Words words = {"plan",
                 "finetune_full",
                 "Llama-3.2-1B",
                 "--gpu=h100-sxm",
                 "--gpus=2",
                 "--search",
                 "--json",
                 "--train.max_seq_length=512",
                 "--allow=precision,lora,fewer"};
  const Outcome o = run(words);
  ASSERT_EQ(o.code, 0) << o.err;
  const json out = json::parse(o.out);
  ASSERT_GT(out["allowed"].size(), 3U);
  double before = 0;
  bool fewer = false, adapters = false;
  const json* cheapest = &out["allowed"][0];
  for (const json& row : out["allowed"]) {
    if (row["gpu_seconds"] < (*cheapest)["gpu_seconds"]) cheapest = &row;
    EXPECT_GE(row["step_seconds"], before) << "the fastest first";
    before = row["step_seconds"];
    EXPECT_NEAR(row["gpu_seconds"].get<double>(), row["gpus"].get<int>() * before, 1e-9);
    fewer = fewer || row["gpus"] == 1;
    adapters = adapters || row["what"].get<std::string>().find("lora") != std::string::npos;
  }
  EXPECT_TRUE(fewer && adapters);
  // Its command plans what the row says.
  const std::string command = (*cheapest)["command"];
  std::istringstream parts(command);
  Words again = {"--gpu=h100-sxm"};
  for (std::string word; parts >> word;)
    if (word != "capstan") again.push_back(word);
  const json planned = plan(again, 0);
  EXPECT_EQ(planned["time"]["step_seconds"], (*cheapest)["step_seconds"]) << command;
  EXPECT_EQ(planned["memory"]["peak_bytes"], (*cheapest)["peak_bytes"]) << command;
  words[6] = "--strategy=auto";
  expect_holds(run(words).out, {"*: the cheapest\n\n" + command + "\n"});
  words[6] = "--json";
  words.back() = "--allow=zebra";
  expect_refused(2, words, {"precision, lora, qlora and fewer", "found 'zebra'"});
  words.erase(words.begin() + 5);
  expect_refused(2, words, {"--allow", "also give --search"});
}

// Commands to type and paths are as long as they are.
TEST_F(PlanAnswers, EveryLineFitsATerminal) {
  const Words long_name = {"pretrain",
                           "Llama-3.1-8B",
                           "--gpu=a100-80-sxm",
                           "--gpus=8",
                           "--nodes=4",
                           "--tensor_parallel=2",
                           "--pipeline_parallel=4",
                           "--train.global_batch_size=64",
                           "--train.max_seq_length=2048"};
  for (const Words& words :
       {tuned({"--deadline=36h", "--budget=200"}), tuned({"--budget=0.01"}),
        tuned({"--gpu=v100-16", "--precision=16-true", "--gpus=2"}),
        Words{"finetune_full", "Llama-3.1-8B", "--gpu=h100-sxm", "--train.max_seq_length=2048"},
        Words{"finetune_full", "Llama-3.2-1B", "--accelerator=cpu", "--memory=80GiB",
              "--train.max_seq_length=64"},
        Words{"finetune_full", "Llama-3.2-1B", "--gpu=h100-sxm", "--gpus=2", "--search",
              "--train.max_seq_length=512", "--allow=precision,lora,qlora"},
        tuned({"--gpu=a100-80-pcie", "--gpus=2", "--html=plan.html"}),
        Words{"finetune_full", "Llama-3.1-8B", "--gpu=t4", "--search"}, long_name}) {
    Words all = words;
    all.insert(all.begin(), "plan");
    const Outcome o = run(all);
    EXPECT_TRUE(o.code == 0 || o.code == 3) << o.err;
    for (const char* bad : {"nan", " inf", "-nan", " -0"})
      EXPECT_EQ(o.out.find(bad), std::string::npos) << bad << " in:\n" << o.out;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);)
      if (line.find("capstan ") == std::string::npos) {
        EXPECT_LE(columns_of(line), 80) << line;
      }
  }
}

}  // namespace
}  // namespace capstan::cli_test
