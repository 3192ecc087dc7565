// capstan plan: what a run needs, with nothing on the disk but the recipe.

#include <algorithm>

#include "base/text.h"
#include "plan_program.h"
#include "tensor/device.h"

namespace capstan::cli_test {
namespace {

TEST_F(Plan, AKnownModelNeedsNoFiles) {
  const Words full = {"--command=finetune_full", "--checkpoint_dir=meta-llama/Llama-3.2-1B",
                      "--train.max_seq_length=512", "--memory=80GiB"};
  const json out = plan(full, 0);
  EXPECT_EQ(out["model"]["parameters"], 1'235'814'400);
  const auto& m = out["memory"]["by_category"];
  EXPECT_EQ(m["optimizer"].get<int64_t>() / 1'235'814'400, 8) << "two f32 moments";
  EXPECT_GT(out["largest"]["micro_batch_size"].get<int>(), 1);
  const Outcome text = run(
      {"plan", "--checkpoint_dir=Llama-3.1-70B", "--train.max_seq_length=512", "--memory=80GiB"});
  EXPECT_EQ(text.code, 3);
  expect_holds(text.out, {"70.6 B parameters", "weights", "optimizer", "does not fit: needs ",
                          "80.0 GiB free"});
}

TEST_F(Plan, TakesCommandModelAndRecipesByPosition) {
  write("a.yaml", "train:\n  max_seq_length: 512\nprecision: bf16-true\n");
  write("b.yaml", "train:\n  max_seq_length: 256\n");
  const json full = plan({"finetune_full", "Llama-3.2-1B", "a.yaml", "--memory=80GiB"}, 0);
  EXPECT_EQ(full["model"]["trainable"], 1'235'814'400);
  EXPECT_EQ(full["batch"]["longest"], 512);
  const json lora = plan({"finetune", "meta-llama/Llama-3.2-1B", "--config", "a.yaml", "--config",
                          "b.yaml", "--memory", "80GiB"},
                         0);
  EXPECT_LT(lora["model"]["trainable"], 10'000'000);
  EXPECT_EQ(lora["batch"]["longest"], 256) << "of two recipes the later counts";
  fs::create_directory(at("Llama-3.2-1B"));
  const Outcome empty = run({"plan", "Llama-3.2-1B", "--memory=80GiB"});
  expect_holds(empty.err + empty.out, {"Llama-3.2-1B"});
  expect_refused(4, {"plan", "finetun"}, {"finetun: cannot open", "did you mean finetune?"});
  expect_refused(4, {"plan", "finetune_full", "open_lama_7b"}, {"did you mean open_llama_7b?"});
}

// A plan of the last one alone, or of two recipes made one, is nobody's question.
TEST_F(Plan, RefusesTwoOfAKind) {
  write("a.yaml", "train.max_seq_length: 512\n");
  write("b.yaml", "train.max_seq_length: 256\n");
  expect_refused(
      2, {"plan", "Llama-3.2-1B", "Llama-3.1-8B", "--memory=80GiB"},
      {"Llama-3.2-1B and Llama-3.1-8B are two models", "--compare Llama-3.2-1B Llama-3.1-8B"});
  expect_refused(2, {"plan", "Llama-3.2-1B", "--checkpoint_dir", "Llama-3.1-8B", "--memory=80GiB"},
                 {"Llama-3.2-1B and Llama-3.1-8B are two models"});
  expect_refused(2, {"plan", "Llama-3.2-1B", "a.yaml", "b.yaml", "--memory=80GiB"},
                 {"a.yaml and b.yaml are two recipes", "--compare a.yaml b.yaml",
                  "--config a.yaml --config b.yaml"});
  expect_refused(2, {"plan", "finetune", "finetune_full", "Llama-3.2-1B", "--memory=80GiB"},
                 {"finetune and finetune_full are two commands"});
}

TEST_F(Plan, AMicroBatchOfAnySizeIsPlannedAtOnce) {
  const Outcome o =
      run({"plan", "Llama-3.2-1B", "--memory=80GiB", "--train.micro_batch_size=9223372036854775807",
           "--train.global_batch_size=9223372036854775807"});
  EXPECT_EQ(o.code, 3) << o.err;
  expect_holds(o.out + o.err, {"does not fit", "train.micro_batch_size"});
}

TEST_F(Plan, DoesNotReadStandardInput) {
  ASSERT_NO_FATAL_FAILURE(train_tiny());
  const json found = plan(
      {"finetune", made, "--data.json_path=-", "--memory=8GiB", "--train.max_seq_length=64"}, 0);
  EXPECT_NE(found["basis"].get<std::string>().find("the data come from standard input"),
            std::string::npos)
      << found["basis"];
}

TEST_F(Plan, ARecipeOfAnAdapterIsKnownByAnyOfItsKeys) {
  const std::string model = "checkpoint_dir: Llama-3.2-1B\ntrain.max_seq_length: 64\n";
  const auto trainable = [&](const std::string& more) {
    write("r.yaml", model + more);
    return plan({"r.yaml", "--memory=80GiB"}, 0)["model"]["trainable"].get<int64_t>();
  };
  const int64_t all = trainable("");
  for (const char* key : {"quantize: bnb.nf4\n", "lora_mlp: true\n", "lora_dropout: 0.0\n"})
    EXPECT_LT(trainable(key), all / 10) << key;
  EXPECT_EQ(trainable("quantize: null\n"), all);
}

TEST_F(Plan, TimeAloneIsNoNumberOfSteps) {
  Words words = tiny({"--train.max_steps=null", "--train.max_time=60", "--train.schedule=constant",
                      "--memory=8GiB"});
  EXPECT_FALSE(plan(words, 0).contains("steps"));
  words.emplace_back("--train.max_steps=7");
  EXPECT_EQ(plan(words, 0)["steps"], 7);
}

TEST_F(Plan, WhatItNamesWouldFit) {
  Words words = {"--accelerator=cpu",           "--checkpoint_dir=TinyLlama-1.1B",
                 "--train.max_seq_length=512",  "--train.global_batch_size=32",
                 "--train.micro_batch_size=32", "--memory=40GiB"};
  const json out = plan(words, 3);
  ASSERT_FALSE(out["fits_with"].empty());
  for (const json& row : out["fits_with"]) {
    const auto change = row["change"].get<std::string>();
    EXPECT_LE(row["peak_bytes"].get<int64_t>(), int64_t{40} << 30) << change;
    Words changed = words;
    for (size_t at = 0; at < change.size();) {
      const size_t end = std::min(change.find(" with ", at), change.size());
      const std::string one = change.substr(at, end - at);
      const size_t colon = one.find(": ");
      changed.push_back("--" + one.substr(0, colon) + "=" + one.substr(colon + 2));
      at = end + 6;
    }
    plan(changed, 0);
  }
  words.push_back(fmt::format("--train.micro_batch_size={}",
                              out["largest"]["micro_batch_size"].get<int64_t>()));
  words.push_back(fmt::format("--train.global_batch_size={}",
                              out["largest"]["micro_batch_size"].get<int64_t>()));
  plan(words, 0);
}

TEST_F(Plan, RecomputesNoMoreThanItMust) {
  const auto planned = [&](const std::string& activations, int64_t mebibytes) {
    constexpr int64_t kOfCuda = 896;
    return plan(
        {"finetune_full", "TinyLlama-1.1B", "--accelerator=cuda", "--train.max_seq_length=512",
         "--activations=" + activations, fmt::format("--memory={}MiB", mebibytes + kOfCuda)},
        0);
  };
  constexpr int64_t kPlenty = int64_t{80} << 10;
  const auto needs = [&](const std::string& activations) {
    return planned(activations, kPlenty)["memory"]["peak_bytes"].get<int64_t>();
  };
  EXPECT_EQ(planned("auto", kPlenty)["activations"], "none");
  const json less = planned("auto", (needs("none") >> 20) - 1);
  EXPECT_EQ(less["activations"], "selective:1");
  EXPECT_EQ(less["memory"]["peak_bytes"], needs("selective:1"));
  EXPECT_EQ(planned("auto", (needs("block:9") >> 20) + 1)["activations"], "block:9");
}

TEST_F(Plan, RefusesTheDataThatARunRefuses) {
  train_tiny();
  write("one.json", R"([{"instruction": "a", "output": "b"}])");
  const Words run_of_it = {"finetune_full", made, "--data.json_path=one.json",
                           "--data.val_split_fraction=0.5"};
  Words plan_of_it = run_of_it;
  plan_of_it.insert(plan_of_it.begin(), "plan");
  expect_refused(4, run_of_it, {"cannot hold out"});
  expect_refused(4, plan_of_it, {"cannot hold out"});
  plan_of_it[3] = "--data.json_path=none.json";
  expect_refused(4, plan_of_it, {"none.json: no such file or folder"});
  plan_of_it[3] = "--data=Alpaca2k";
  expect_refused(4, plan_of_it, {"data Alpaca2k: expected data/alpaca2k/"});
  expect_refused(4, {"plan", "Llama-3.2-1B", "--data.json_path=none.json", "--memory=80GiB"},
                 {"none.json: no such file or folder"});
  EXPECT_EQ(run({"plan", "finetune_full", made}).code, 0) << "no data are named";
  write("two.json",
        R"([{"instruction": "a", "output": "b"}, {"instruction": "c", "output": "d"}])");
  plan_of_it[3] = "--data.json_path=two.json";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "MANIFEST.json"})
    fs::remove(at(made) / name);
  const Outcome rough = run(plan_of_it);
  EXPECT_EQ(rough.code, 0) << "a config.json alone is enough for a plan";
  expect_holds(rough.out, {"the longest of about ", "tokenizer is not on this disk"});
}

TEST_F(Plan, AnUnknownModelNamesTheNearest) {
  expect_refused(4, {"plan", "google/gemma-2b"},
                 {"no known model of that name. Known models are Llama 1 to 3.3"});
  expect_refused(2, {"plan", "--checkpoint_dir=Qwen2.5-8B", "--memory=80GiB"},
                 {"unknown model 'Qwen2.5-8B' (did you mean Qwen2.5-3B?)"});
  expect_refused(2, {"plan", "--checkpoint_dir=Qwen2.5-7B", "--memory=lots"}, {"lots"});
}

// A recipe for pretraining with the keys of LitGPT's own, none of whose files is on the disk.
std::string pretraining(const std::string& model, const std::string& data) {
  return model +
         "out_dir: out/x\nprecision: bf16-mixed\ninitial_checkpoint_dir:\nresume: false\n"
         "data: " +
         data +
         "\ntrain:\n  save_interval: 1000\n  log_interval: 1\n"
         "  global_batch_size: 48\n  micro_batch_size: 12\n  lr_warmup_steps: 2000\n  epochs:\n"
         "  max_tokens: 3000000000000\n  max_steps:\n  max_seq_length: 128\n  tie_embeddings:\n"
         "  max_norm: 1.0\n  min_lr: 4.0e-05\neval:\n  interval: 1000\n  max_new_tokens:\n"
         "  max_iters: 100\n  initial_validation: false\noptimizer:\n"
         "  class_path: torch.optim.AdamW\n  init_args:\n    lr: 4e-4\n    weight_decay: 0.1\n"
         "    betas:\n      - 0.9\n      - 0.95\ndevices: auto\nnum_nodes: 1\n"
         "tokenizer_dir: checkpoints/meta-llama/Llama-2-7b-hf\nlogger_name: csv\nseed: 42\n";
}

TEST_F(Plan, LitgptsPretrainingRecipesNeedNoFiles) {
  const auto parameters = [&](const std::string& model, const char* data) {
    write("r.yaml", pretraining(model, data));
    const json out = plan({"--config", "r.yaml", "--memory=1TiB"}, 0);
    EXPECT_EQ(out["batch"]["tokens"], 12 * 128);
    return out["model"]["parameters"].get<int64_t>();
  };
  EXPECT_EQ(parameters("model_name: tiny-llama-1.1b\nmodel_config:\n", "TinyLlama"), 1'100'048'384);
  // embedding and head + 12 blocks of q, o, k, v, three of the MLP and two norms + the last norm
  const int64_t micro = 2 * 32000 * 1024 +
                        12 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 5632 + 2 * 1024) + 1024;
  EXPECT_EQ(parameters("model_name: micro-llama-300M\nmodel_config:\n", "MicroLlama"), micro);
  const std::string sizes =
      "model_name: stories\nmodel_config:\n  name: stories\n  hf_config: {}\n  block_size: 256\n"
      "  padded_vocab_size: 32000\n  n_layer: 6\n  n_head: 6\n  n_query_groups: 6\n"
      "  n_embd: 288\n  head_size: 48\n  rotary_percentage: 1.0\n  parallel_residual: false\n"
      "  bias: false\n  norm_class_name: RMSNorm\n  mlp_class_name: LLaMAMLP\n"
      "  intermediate_size: 768\n";
  EXPECT_EQ(parameters(sizes, "TinyStories"),
            2 * 32000 * 288 + 6 * (4 * 288 * 288 + 3 * 288 * 768 + 2 * 288) + 288);
  write("r.yaml", pretraining("model_name: pythia-14m\n", "OpenWebText"));
  expect_refused(2, {"plan", "--config", "r.yaml"}, {"unknown model 'pythia-14m'"});
  // As many rows as a tokenizer has that is not here: nobody knows.
  write("r.yaml", pretraining("model.hidden_size: 64\n", "TinyStories"));
  expect_refused(4, {"plan", "--config", "r.yaml"},
                 {"checkpoints/meta-llama/Llama-2-7b-hf: no such folder; give"});
}

// The run follows the plan to the byte, and refuses with the plan's words.
TEST_F(Plan, IsWhatTheRunAllocates) {
  Words run_words = tiny({"--train.save_interval=1"});
  const Outcome o = run(run_words);
  ASSERT_EQ(o.code, 0) << o.err;
  Words words(run_words.begin() + 1, run_words.end());
  words.insert(words.begin(), "--command=pretrain");
  const Words before = words;
  words.insert(words.begin(), "plan");
  const std::string planned = run(words).out;
  const auto table = [](const std::string& text) {
    const size_t begin = text.find("  memory  ");
    return text.substr(begin, text.find("\n\n", begin) - begin);
  };
  EXPECT_EQ(table(planned), table(o.out));
  const json exact = plan(before, 0);
  EXPECT_EQ(exact["steps"], 3);
}

// On this machine products take their time, at 1 TFLOP/s, and the rest next to none.
std::string round_figures(const std::string& accelerator, const std::string& type) {
  json c = {{"format", "capstan calibration"}, {"version", 3},         {"name", "a round machine"},
            {"accelerator", accelerator},      {"date", "2026-08-05"}, {"seconds_per_call", 1e-12},
            {"bytes_per_second", 1e21}};
  if (accelerator == "cuda") c["to_device_bytes_per_second"] = c["to_host_bytes_per_second"] = 1e21;
  c["types"][type] = {
      {"flops_per_second",
       {{"product", 1e12}, {"head", 1e12}, {"attention", 1e21}, {"attention_backward", 1e21}}},
      {"bytes_per_second", {{"elementwise", 1e21}, {"optimizer", 1e21}}},
      {"step", {{"seconds", 2.0}, {"predicted_seconds", 1.0}}}};
  return c.dump(2);
}

TEST_F(Plan, PredictsTheTimeOfAStepByACalibration) {
  write("cpu.json", round_figures("cpu", "f32"));
  write("gpu.json", round_figures("cuda", "bf16"));
  write("fp8.json", round_figures("cuda", "fp8"));
  const Words words = {"finetune_full",
                       "Llama-3.2-1B",
                       "--train.max_seq_length=512",
                       "--train.micro_batch_size=2",
                       "--train.global_batch_size=8",
                       "--memory=80GiB"};
  const auto with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  // All parameters but the norms, with the tied head, forward and backward; twice, by the step.
  const double weights = 1'235'814'400 - 33 * 2048;
  const double seconds = 2 * 6 * 4096 * weights / 1e12;
  for (const Words& more :
       {Words{"--accelerator=cpu", "--calibration=cpu.json"},
        Words{"--accelerator=cuda", "--calibration=gpu.json"},
        Words{"--accelerator=cuda", "--precision=fp8-mixed", "--calibration=fp8.json"}}) {
    const json time = plan(with(more), 0)["time"];
    EXPECT_NEAR(time["step_seconds"].get<double>(), seconds, 1e-4 * seconds);
    EXPECT_EQ(time["step_tokens"], 4096);
    EXPECT_NEAR(time["tokens_per_second"].get<double>(), 4096 / seconds, 1e-3);
    EXPECT_EQ(time["calibration"]["name"], "a round machine");
    EXPECT_FALSE(time.contains("run_seconds")) << "nobody knows how many steps";
  }
  Words text = with({"--accelerator=cpu", "--calibration=cpu.json"});
  text.insert(text.begin(), "plan");
  expect_holds(unwrapped(run(text).out),
               {"a step takes about 60.7 s (67.4 tokens/s), from the calibration of a "
                "round machine of 2026-08-05"});
  text.back() = "--calibration=gpu.json";
  expect_refused(2, text, {"for a round machine (accelerator cuda)", "--accelerator cuda"});
  text = with({"--accelerator=cuda", "--precision=fp8-mixed", "--calibration=gpu.json"});
  text.insert(text.begin(), "plan");
  expect_refused(2, text, {"has no rates for fp8", "on a GPU with FP8 support"});
}

// What was measured in one machine says nothing of what connects several.
TEST_F(Plan, OfSeveralMachinesTakesNoLinkOfOne) {
  json c = json::parse(round_figures("cuda", "bf16"));
  c["networks"]["8"] = {{"seconds_per_message", 0}, {"bytes_per_second", 123e9}};
  write("gpu.json", c.dump());
  const auto links = [&](const Words& more, double& seconds) {
    Words words = {"finetune_full",         "Llama-3.2-1B", "--train.max_seq_length=512",
                   "--strategy=zero3",      "--gpus=8",     "--gpu=h100-sxm",
                   "--calibration=gpu.json"};
    words.insert(words.end(), more.begin(), more.end());
    const json out = plan(words, 0);
    seconds = out["time"]["step_seconds"];
    std::vector<std::string> all;
    for (const json& source : out["sources"])
      if (source["what"].get<std::string>().starts_with("links"))
        all.push_back(source["what"].get<std::string>() + ": " +
                      source["value"].get<std::string>() + ", " +
                      source["origin"].get<std::string>());
    return all;
  };
  double one = 0, two = 0, slow = 0, measured = 0;
  const std::string within =
      "links within a machine, each way: 123 GB/s, 0 µs a message, capstan "
      "bench on a round machine, 2026-08-05";
  EXPECT_EQ(links({}, one), std::vector{within});
  auto found = links({"--nodes=2"}, two);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], within);
  EXPECT_TRUE(
      found[1].starts_with("links between machines, each way: 50 GB/s, 14 µs a message, "
                           "parts of the data sheet"))
      << found[1];
  found = links({"--nodes=2", "--network=1"}, slow);
  EXPECT_EQ(found.back(), "links between machines, each way: 1 GB/s, 14 µs a message, --network");
  EXPECT_GT(slow, two);
  c["networks_across"]["16"] = {{"seconds_per_message", 0}, {"bytes_per_second", 5e9}};
  write("gpu.json", c.dump());
  EXPECT_EQ(links({"--nodes=2"}, measured),
            std::vector<std::string>{"links of all ranks, each way: 5 GB/s, 0 µs a message, "
                                     "capstan bench on a round machine, 2026-08-05"});
  EXPECT_GT(measured, two);
  EXPECT_EQ(links({}, measured), std::vector{within});
  EXPECT_EQ(measured, one);
}

TEST_F(Plan, RefusesFilesThatItCannotWriteBeforeItPlans) {
  fs::create_directory(at("page"));
  for (const char* option : {"--html=", "--trace="})
    expect_refused(4, {"plan", "Llama-3.2-1B", "--gpu=h100-sxm", option + std::string("page")},
                   {"page: expected the name of a file, found a folder; name a file in it"});
}

// Before it measures: both would take seconds.
TEST_F(Plan, LinksAreNotMeasuredForACalibrationThatCannotTakeThem) {
  write("gpu.json", round_figures("cuda", "bf16"));
  write("old.json", replaced(round_figures("cpu", "f32"), "\"version\": 3", "\"version\": 2"));
  const Words words = {"bench", "comm", "--accelerator=cpu", "--devices=2"};
  const auto into = [&](const char* file) {
    Words all = words;
    all.push_back(std::string("--out=") + file);
    return all;
  };
  expect_refused(2, into("gpu.json"),
                 {"gpu.json: the calibration is for a round machine (accelerator cuda), and ranks "
                  "on accelerator cpu are to be measured"});
  expect_refused(4, into("old.json"), {"old.json:26:3: version: expected 3, found 2"});
}

TEST_F(Plan, PredictsTheTimeOfARunWithItsData) {
  write("cpu.json", round_figures("cpu", "f32"));
  Words words = tiny({"--calibration=cpu.json", "--accelerator=cpu"});
  words.front() = "pretrain";
  const json out = plan(words, 0);
  const json& time = out["time"];
  EXPECT_GT(time["step_seconds"], 0);
  EXPECT_NEAR(time["run_seconds"].get<double>(), 3 * time["step_seconds"].get<double>(), 1e-12);
  words.insert(words.begin(), "plan");
  expect_holds(run(words).out, {"the 3 steps take about "});
}

TEST_F(Plan, WithoutACalibrationSaysHowToGetOne) {
  Words words = {"plan", "Llama-3.2-1B", "--accelerator=cpu", "--train.max_seq_length=64",
                 "--memory=80GiB"};
  expect_holds(unwrapped(run(words).out), {"the time of a step is unknown: run 'capstan bench"});
  words.emplace_back("--precision=fp8-mixed");
  expect_holds(unwrapped(run(words).out),
               {"FP8 products can only be measured on a device that supports them"});
  if (cuda_present()) return;
  words[2] = "--accelerator=cuda";
  expect_holds(unwrapped(run(words).out), {"run 'capstan bench --out FILE' there"});
}

TEST_F(Plan, DoesNotTrustADamagedCalibration) {
  const std::string good = round_figures("cpu", "f32");
  write("bad.json", good.substr(0, good.size() / 2));
  Words words = {
      "plan",           "Llama-3.2-1B",          "--accelerator=cpu", "--train.max_seq_length=64",
      "--memory=80GiB", "--calibration=bad.json"};
  expect_refused(4, words, {"bad.json:", "not valid JSON"});
}

TEST_F(Cli, BenchTellsItsOptionsAndRefusesOthers) {
  expect_holds(run({"bench", "--help"}).out, {"--accelerator", "--out", "--quick", "--json"});
  expect_holds(run({"help"}).out, {"bench"});
  expect_refused(2, {"bench", "--fast"}, {"no such option"});
  if (!cuda_present()) expect_refused(5, {"bench", "--accelerator=cuda"}, {"cannot be used"});
  // Before it measures for a minute, not after.
  expect_refused(4, {"bench", "--accelerator=cpu", "--out=/proc/none/here"}, {"/proc/none"});
}

// Recipes of a laboratory that uses LitGPT, with its overrides; no checkpoint is on the disk.
TEST_F(Plan, TheLabsFullRecipesFor80GiB) {
  if (!fs::exists(recipes)) GTEST_SKIP() << "no recipes beside the project";
  const auto full = [&](const char* name, const Words& more, int code) {
    Words words = {(recipes / name).string(), "--memory=80GiB"};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words, code);
  };
  const Words global32 = {"--train.global_batch_size=32", "--train.micro_batch_size=8"};
  full("tiny-llama-full.yaml", global32, 0);
  for (const char* precision : {"--precision=bf16-true", "--precision=bf16-mixed"})
    full("tiny-llama-full.yaml", {global32[0], global32[1], precision}, 0);
  // LitGPT runs out of memory in the middle of a step with this one.
  full("tiny-llama-full.yaml", {global32[0], "--train.micro_batch_size=32"}, 0);
  full("open-llama-3b-full.yaml", {"--train.micro_batch_size=4"}, 0);
  const json seven = full(
      "open-llama-7b-full.yaml",
      {"--train.global_batch_size=16", "--train.micro_batch_size=4", "--precision=bf16-true"}, 0);
  EXPECT_EQ(seven["memory"]["by_category"]["weights"].get<int64_t>() / 1'000'000'000, 13);
  full("open-llama-7b-full.yaml", {}, 3);
  full("open-llama-13b-full.yaml",
       {"--train.global_batch_size=1", "--train.micro_batch_size=1", "--precision=bf16-true",
        "--optimizer=SGD", "--train.max_steps=25"},
       0);
}

TEST_F(Plan, TheLabsAdapterRecipesFor80GiB) {
  if (!fs::exists(recipes)) GTEST_SKIP() << "no recipes beside the project";
  for (const char* name : {"tiny-llama", "open-llama-3b", "open-llama-7b", "open-llama-13b"}) {
    const std::string recipe = (recipes / (std::string(name) + "-lora.yaml")).string();
    const json lora = plan({recipe, "--memory=80GiB"}, 0);
    const json qlora = plan({recipe, "--memory=80GiB", "--quantize=bnb.nf4"}, 0);
    const json full =
        plan({(recipes / (std::string(name) + "-full.yaml")).string(), "--memory=10TiB",
              "--precision=bf16-true", "--train.micro_batch_size=4"},
             0);
    const auto peak = [](const json& p) { return p["memory"]["peak_bytes"].get<int64_t>(); };
    EXPECT_LT(peak(qlora), peak(lora)) << name;
    EXPECT_LT(peak(lora), peak(full)) << name;
    EXPECT_LT(lora["model"]["trainable"].get<int64_t>() * 20,
              lora["model"]["parameters"].get<int64_t>());
  }
}

}  // namespace
}  // namespace capstan::cli_test
