// capstan plan: what a run needs, with nothing on the disk but the recipe.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {
namespace {

using nlohmann::json;

class Plan : public Cli {
 protected:
  json plan(Words words, int code) const {
    words.insert(words.begin(), "plan");
    words.emplace_back("--json");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err << o.out;
    EXPECT_LT(o.seconds, 5.0);
    const json out = json::parse(o.out, nullptr, false);
    EXPECT_EQ(out.value("fits", false), code == 0) << o.out << o.err;
    int64_t sum = 0;
    for (const auto& [name, bytes] : out["memory"]["by_category"].items())
      sum += bytes.get<int64_t>();
    EXPECT_EQ(out["memory"]["peak_bytes"], sum) << "categories are all there is";
    return out;
  }
  fs::path recipes = fs::path(CAPSTAN_SOURCE_DIR) / ".." / "shared" / "recipes";
};

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
  const json lora =
      plan({"finetune", "meta-llama/Llama-3.2-1B", "a.yaml", "b.yaml", "--memory", "80GiB"}, 0);
  EXPECT_LT(lora["model"]["trainable"], 10'000'000);
  EXPECT_EQ(lora["batch"]["longest"], 256) << "of two recipes the later counts";
  fs::create_directory(at("Llama-3.2-1B"));
  const Outcome empty = run({"plan", "Llama-3.2-1B", "--memory=80GiB"});
  expect_holds(empty.err + empty.out, {"Llama-3.2-1B"});
  expect_refused(4, {"plan", "finetun"}, {"finetun: cannot open", "did you mean finetune?"});
  expect_refused(4, {"plan", "finetune_full", "open_lama_7b"}, {"did you mean open_llama_7b?"});
}

TEST_F(Plan, AMicroBatchOfAnySizeIsPlannedAtOnce) {
  const Outcome o =
      run({"plan", "Llama-3.2-1B", "--memory=80GiB", "--train.micro_batch_size=9223372036854775807",
           "--train.global_batch_size=9223372036854775807"});
  EXPECT_EQ(o.code, 3) << o.err;
  expect_holds(o.out + o.err, {"does not fit", "train.micro_batch_size"});
}

TEST_F(Plan, AGpuThatIsNotHereIsPlannedAsIfItWere) {
  Words words = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512", "--memory=80GiB"};
  const auto with = [&](std::string accelerator, std::string precision = "") {
    Words all = words;
    all.push_back("--accelerator=" + accelerator);
    if (!precision.empty()) all.push_back("--precision=" + precision);
    return plan(all, 0)["memory"]["by_category"];
  };
  EXPECT_EQ(with("cuda"), with("gpu")) << "two words for one thing";
  EXPECT_EQ(with("cuda"), with("cuda", "bf16-mixed")) << "what LitGPT would take";
  EXPECT_EQ(with("cpu"), with("cpu", "32-true"));
  EXPECT_NE(with("cuda", "32-true"), with("cpu", "32-true")) << "each has scratch of its own";
  const auto exact = with("cuda", "32-true");
  words.push_back("--matmul_precision=high");
  EXPECT_EQ(with("cuda", "32-true"), exact) << "TF32 needs no room";
  words.pop_back();
  const auto nearest = with("cuda", "bf16-true");
  words.push_back("--optimizer.rounding=stochastic");
  EXPECT_EQ(with("cuda", "bf16-true"), nearest);
}

TEST_F(Plan, DoesNotReadStandardInput) {
  ASSERT_EQ(run({"demo", "--out_dir=demo", "--train.max_steps=1"}).code, 0);
  const json found = plan({"finetune", "demo/final", "--data.json_path=-", "--memory=8GiB",
                           "--train.max_seq_length=64"},
                          0);
  EXPECT_NE(found["basis"].get<std::string>().find("the data come from standard input"),
            std::string::npos)
      << found["basis"];
}

TEST_F(Plan, OfF16SaysThatBf16ServesBetter) {
  const auto text = [&](const std::string& precision) {
    const Outcome o = run({"plan", "finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512",
                           "--memory=80GiB", "--accelerator=cuda", "--precision=" + precision});
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  expect_holds(text("16-mixed"), {"bf16-mixed would serve better than 16-mixed"});
  expect_holds(text("16-true"), {"bf16-true would serve better than 16-true"});
  for (const char* other : {"bf16-mixed", "bf16-true", "32-true"})
    EXPECT_EQ(text(other).find("serve better"), std::string::npos) << other;
}

TEST_F(Plan, OfAGpuOfTheCatalogueHasItsMemoryAndItsTypes) {
  const auto with = [&](const Words& more, int code) {
    Words words = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512"};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words, code);
  };
  const json v100 = with({"--gpu=v100-32"}, 0), h100 = with({"--gpu=h100-sxm"}, 0);
  EXPECT_EQ(v100["memory"]["by_category"],
            with({"--memory=32GiB", "--accelerator=cuda", "--precision=16-mixed"},
                 0)["memory"]["by_category"])
      << "it has no bf16";
  EXPECT_EQ(h100["memory"], with({"--memory=80GiB", "--accelerator=cuda"}, 0)["memory"]);
  EXPECT_NE(v100["basis"].get<std::string>().find("on a v100-32 (32.0 GiB)"), std::string::npos);
  const json t4 = with({"--gpu=t4"}, 3);
  for (const auto& change : t4["fits_with"])
    EXPECT_EQ(change.get<std::string>().find("bf16"), std::string::npos) << change;
  EXPECT_EQ(with({"--gpu=t4", "--memory=24GiB"}, 0)["memory"]["peak_bytes"],
            v100["memory"]["peak_bytes"]);
  const Words words = {"plan", "finetune_full", "Llama-3.2-1B", "--gpu=v100-32"};
  Words bf16 = words, cpu = words;
  bf16.push_back("--precision=bf16-mixed");
  cpu.push_back("--accelerator=cpu");
  expect_refused(2, bf16, {"bf16-mixed needs a GPU that computes with bf16", "use 16-mixed"});
  expect_refused(
      2, {"plan", "finetune_full", "Llama-3.2-1B", "--gpu=a100-80-sxm", "--precision=fp8-mixed"},
      {"fp8-mixed needs a GPU with FP8 products", "a100-80-sxm has none"});
  expect_refused(2, cpu, {"--gpu v100-32 and --accelerator cpu exclude each other"});
  expect_refused(2, {"plan", "Llama-3.2-1B", "--gpu=h101"}, {"no GPU 'h101' is known"});
}

// With weights and gradients in two bytes, and moments in four each.
TEST_F(Plan, OfF16KeepsTheMomentsInF32) {
  const auto by_category = [&](const std::string& precision) {
    return plan({"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512", "--memory=80GiB",
                 "--accelerator=cuda", "--precision=" + precision},
                0)["memory"]["by_category"];
  };
  const json half = by_category("16-true"), bf16 = by_category("bf16-true");
  EXPECT_EQ(half["weights"], bf16["weights"]);
  EXPECT_EQ(half["gradients"], bf16["gradients"]);
  const double ratio = half["optimizer"].get<double>() / bf16["optimizer"].get<double>();
  EXPECT_NEAR(ratio, 2, 1e-3);
  EXPECT_EQ(by_category("16-mixed"), by_category("bf16-mixed"));
}

// No GPU is needed to know what a paged optimizer leaves of its memory.
TEST_F(Plan, OfAGpuHasHostMemoryInASpaceOfItsOwn) {
  const auto with = [&](const char* optimizer, const Words& more, int code) {
    Words words = {"finetune_full",
                   "Llama-3.2-1B",
                   "--accelerator=cuda",
                   "--precision=bf16-true",
                   "--train.save_async=false",
                   "--train.max_seq_length=512",
                   "--memory=80GiB",
                   std::string("--optimizer=") + optimizer};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words, code);
  };
  const auto peak = [](const json& p, const char* space) {
    return p[space]["peak_bytes"].get<int64_t>();
  };
  const auto state = [](const json& p, const char* space) {
    return p[space]["by_category"].value("optimizer", int64_t{0});
  };
  for (const std::string kind : {"AdamW", "AdamW8bit"}) {
    const json usual = with(kind.c_str(), {}, 0), paged = with(("Paged" + kind).c_str(), {}, 0);
    const int64_t batches = peak(usual, "host_memory");
    EXPECT_EQ(batches, usual["host_memory"]["by_category"]["data"]) << "on their way to the GPU";
    EXPECT_LT(batches, 1 << 20);
    EXPECT_EQ(peak(paged, "memory") + peak(paged, "host_memory"), peak(usual, "memory") + batches);
    EXPECT_EQ(state(paged, "memory"), 512) << "the gradients' norm and its factor";
    EXPECT_EQ(state(paged, "host_memory") + batches, peak(paged, "host_memory"));
    EXPECT_FALSE(paged["host_memory"].contains("available_bytes")) << "nobody said";
  }
  const json little = with("PagedAdamW", {"--host-memory=2GiB"}, 3);
  EXPECT_EQ(little["host_memory"]["available_bytes"], int64_t{2} << 30);
  const json beside = with("AdamW", {"--train.save_async=true"}, 0);
  const json waiting = with("AdamW", {}, 0);
  const auto copy = beside["host_memory"]["by_category"]["staging"].get<int64_t>();
  EXPECT_EQ(peak(waiting, "host_memory") + copy, peak(beside, "host_memory"));
  EXPECT_EQ(peak(beside, "memory"), peak(waiting, "memory"));
  // Without room for the copy the run waits for its saves, and fits.
  EXPECT_EQ(
      peak(with("AdamW", {"--train.save_async=true", "--host-memory=1GiB"}, 0), "host_memory"),
      peak(waiting, "host_memory"));
}

TEST_F(Plan, NamesPagedOptimizersForAGpuThatIsTooSmall) {
  Words words = {"finetune_full",
                 "Llama-3.2-1B",
                 "--accelerator=cuda",
                 "--precision=bf16-true",
                 "--train.max_seq_length=128",
                 "--train.micro_batch_size=1",
                 "--memory=7GiB"};
  const json out = plan(words, 3);
  const json& changes = out["fits_with"];
  EXPECT_NE(std::find(changes.begin(), changes.end(), "optimizer: PagedAdamW"), changes.end())
      << changes;
  words.push_back("--optimizer=PagedAdamW");
  EXPECT_EQ(plan(words, 0)["memory"]["available_bytes"], (int64_t{7} << 30) - (int64_t{896} << 20));
  words.push_back("--host-memory=1GiB");
  words.insert(words.begin(), "plan");
  const Outcome refused = run(words);
  EXPECT_EQ(refused.code, 3);
  expect_holds(refused.out, {"PagedAdamW\n", "  host memory ", "does not fit: needs ",
                             " of host memory, 1.00 GiB free",
                             "CUDA itself takes about 896 MiB of the GPU's 7.00 GiB\n"});
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

TEST_F(Plan, OfAGpuThatIsTooSmallForCudaIsRefused) {
  expect_refused(2, {"plan", "Llama-3.2-1B", "--accelerator=cuda", "--memory=500MiB"},
                 {"--memory 500MiB is less than CUDA itself takes on a GPU, about 896 MiB"});
}

TEST_F(Plan, TimeAloneIsNoNumberOfSteps) {
  Words words = tiny({"--train.max_steps=null", "--train.max_time=60", "--train.schedule=constant",
                      "--memory=8GiB"});
  EXPECT_FALSE(plan(words, 0).contains("steps"));
  words.emplace_back("--train.max_steps=7");
  EXPECT_EQ(plan(words, 0)["steps"], 7);
}

TEST_F(Plan, OfAGpuThatIsNotHereMustBeToldItsMemory) {
  if (cuda_present()) GTEST_SKIP() << "there is one here";
  expect_refused(2, {"plan", "Llama-3.2-1B", "--accelerator=cuda"},
                 {"there is no GPU here; give its memory", "--memory 80GiB"});
}

TEST_F(Plan, HostMemoryIsBesideAGpuAlone) {
  expect_refused(
      2, {"plan", "Llama-3.2-1B", "--accelerator=cpu", "--memory=80GiB", "--host-memory=80GiB"},
      {"--host-memory is for a GPU"});
}

TEST_F(Plan, WhatItNamesWouldFit) {
  Words words = {"--accelerator=cpu",           "--checkpoint_dir=TinyLlama-1.1B",
                 "--train.max_seq_length=512",  "--train.global_batch_size=32",
                 "--train.micro_batch_size=32", "--memory=40GiB"};
  const json out = plan(words, 3);
  ASSERT_FALSE(out["fits_with"].empty());
  for (const std::string change : out["fits_with"]) {
    Words changed = words;
    const size_t colon = change.find(": ");
    changed.push_back("--" + change.substr(0, colon) + "=" + change.substr(colon + 2));
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
  plan_of_it[3] = "--data.json_path=one.json";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "MANIFEST.json"})
    fs::remove(at(made) / name);
  EXPECT_EQ(run(plan_of_it).code, 0) << "a config.json alone is enough for a plan";
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
  json c = {{"format", "capstan calibration"}, {"version", 1},         {"name", "a round machine"},
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
  expect_holds(run(text).out,
               {"a step takes about 60.7 s (67.4 tokens/s), from the calibration of a "
                "round machine of 2026-08-05\n"});
  text.back() = "--calibration=gpu.json";
  expect_refused(2, text, {"for a round machine (accelerator cuda)", "--accelerator cuda"});
  text = with({"--accelerator=cuda", "--precision=fp8-mixed", "--calibration=gpu.json"});
  text.insert(text.begin(), "plan");
  expect_refused(2, text, {"has no rates for fp8", "on a GPU with FP8 support"});
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
  expect_holds(run(words).out, {"the time of a step is unknown: run 'capstan bench"});
  words.emplace_back("--precision=fp8-mixed");
  expect_holds(run(words).out,
               {"FP8 products can only be measured on a device that supports them"});
  if (cuda_present()) return;
  words[2] = "--accelerator=cuda";
  expect_holds(run(words).out, {"run 'capstan bench --out FILE' there"});
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
