// capstan plan for a GPU, here or elsewhere.

#include "plan_program.h"
#include "tensor/device.h"

namespace capstan::cli_test {
namespace {

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
  const auto rounded = with("cuda", "32-true");
  words.push_back("--matmul_precision=highest");
  EXPECT_EQ(with("cuda", "32-true"), rounded) << "TF32 needs no room";
  words.pop_back();
  const auto nearest = with("cuda", "bf16-true");
  words.push_back("--optimizer.rounding=stochastic");
  EXPECT_EQ(with("cuda", "bf16-true"), nearest);
}

TEST_F(Plan, OfF16SaysThatBf16ServesBetter) {
  const auto text = [&](const std::string& precision) {
    const Outcome o = run({"plan", "finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512",
                           "--memory=80GiB", "--accelerator=cuda", "--precision=" + precision});
    EXPECT_EQ(o.code, 0) << o.err;
    return unwrapped(o.out);
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
  EXPECT_EQ(h100["memory"], with({"--memory=80998MiB", "--accelerator=cuda"}, 0)["memory"])
      << "79.1 of 80 GiB are there for CUDA";
  EXPECT_NE(v100["basis"].get<std::string>().find("on v100-32 (31.7 GiB)"), std::string::npos);
  const json t4 = with({"--gpu=t4"}, 3);
  for (const auto& change : t4["fits_with"])
    EXPECT_EQ(change["change"].get<std::string>().find("bf16"), std::string::npos) << change;
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

// Machines that are not here: their times are by data sheet, and say so.
TEST_F(Plan, OfAGpuOfTheCatalogueHasTimesByItsDataSheet) {
  const auto words = [](const Words& more) {
    Words all = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512", "--gpu=a100-80-sxm",
                 "--train.global_batch_size=512"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const json one = plan(words({}), 0)["time"];
  EXPECT_TRUE(one["calibration"]["data_sheet"].get<bool>());
  const json many = plan(words({"--devices=8", "--num_nodes=8"}), 0)["time"];
  EXPECT_GT(many["tokens_per_second"], 16 * one["tokens_per_second"].get<double>());
  EXPECT_LT(many["tokens_per_second"], 64 * one["tokens_per_second"].get<double>());
  const json slow = plan(words({"--devices=8", "--num_nodes=8", "--network=1"}), 0)["time"];
  EXPECT_GT(slow["step_seconds"], 1.5 * many["step_seconds"].get<double>());
  EXPECT_GT(slow["exposed_communication"], 0.3);
  Words text = words({"--devices=8", "--num_nodes=8", "--network=1"});
  text.insert(text.begin(), "plan");
  expect_holds(run(text).out, {"by the data sheet of", "exposed communication"});
  const json thousands =
      plan(words({"--devices=64", "--num_nodes=64", "--train.global_batch_size=4096"}), 0);
  EXPECT_EQ(thousands["ranks"]["count"], 4096);
  expect_refused(2, {"plan", "Llama-3.2-1B", "--memory=80GiB", "--network=25"},
                 {"also give --gpu"});
  expect_refused(2, {"plan", "Llama-3.2-1B", "--gpu=h200", "--devices=64", "--num_nodes=65"},
                 {"are 4160 ranks; expected at most 4096"});
}

// LitGPT's 32-true is TF32, which the data sheet of an A100 has eight times as fast as f32.
TEST_F(Plan, Of32TrueOnAGpuIsOfProductsInTf32) {
  const auto with = [&](const char* gpu, const Words& more) {
    Words words = {"finetune_full",
                   "TinyLlama-1.1B",
                   "--precision=32-true",
                   "--train.max_seq_length=512",
                   "--train.micro_batch_size=8",
                   fmt::format("--gpu={}", gpu)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto seconds = [&](const char* gpu, const Words& more, const char* products) {
    const json out = plan(with(gpu, more), 0);
    EXPECT_EQ(out["run"]["precision"], "32-true");
    EXPECT_EQ(out["run"]["products"], products) << gpu;
    return out["time"]["step_seconds"].get<double>();
  };
  const double a100 = seconds("a100-80-pcie", {}, "tf32");
  EXPECT_EQ(seconds("a100-80-pcie", {"--matmul_precision=high"}, "tf32"), a100);
  EXPECT_GT(seconds("a100-80-pcie", {"--matmul_precision=highest"}, "f32"), 5 * a100);
  const double v100 = seconds("v100-32", {}, "f32");
  for (const char* asked : {"high", "highest"})
    EXPECT_EQ(seconds("v100-32", {fmt::format("--matmul_precision={}", asked)}, "f32"), v100);
  Words text = with("a100-80-pcie", {});
  text.insert(text.begin(), "plan");
  expect_holds(run(text).out, {"32-true (TF32)"});
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
  EXPECT_TRUE(std::any_of(changes.begin(), changes.end(), [](const json& row) {
    return row["change"] == "optimizer: PagedAdamW";
  })) << changes;
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

// What a plan proposes, as words of the command line.
Words words_of(std::string change) {
  for (size_t at; (at = change.find(" with ")) != std::string::npos;) change.replace(at, 6, ", ");
  Words words;
  for (size_t begin = 0, end; begin < change.size(); begin = end + 2) {
    end = std::min(change.find(", ", begin), change.size());
    std::string word = change.substr(begin, end - begin);
    words.push_back("--" + word.replace(word.find(": "), 2, "="));
  }
  return words;
}

TEST_F(Plan, SaysHowManyGpusAreEnough) {
  Words words = {"finetune_full", "Llama-2-70b-hf", "--gpu=a100-80-sxm",
                 "--train.max_seq_length=512"};
  const json out = plan(words, 3);
  std::string gpus;
  for (const auto& remedy : out["fits_with"])
    if (const auto what = remedy["change"].get<std::string>(); what.starts_with("devices"))
      gpus = what;
  ASSERT_NE(gpus.find("num_nodes: "), std::string::npos) << out["fits_with"];
  expect_holds(out["verdict"].get<std::string>(), {"Fits with: " + gpus});
  const Words more = words_of(gpus);
  words.insert(words.end(), more.begin(), more.end());
  plan(words, 0);
}

TEST_F(Plan, AdaptersMayRecomputeToFit) {
  const Words words = {"Qwen2.5-14B", "--gpu=t4", "--train.max_seq_length=1024"};
  const auto with = [&](const Words& before, const Words& after, int code) {
    Words all = before;
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), after.begin(), after.end());
    return plan(all, code);
  };
  const std::string adapters = "command: finetune_lora with ";
  std::string found;
  const json out = with({"finetune_full"}, {}, 3);
  for (const auto& remedy : out["fits_with"])
    if (const auto what = remedy["change"].get<std::string>(); what.starts_with(adapters))
      found = what.substr(adapters.size());
  expect_holds(found, {"quantize: bnb.nf4 with activations: "});
  with({"finetune_lora"}, words_of(found), 0);
}

TEST_F(Plan, WithoutAStrategyTakesTheFastest) {
  const auto with = [&](const Words& more) {
    Words words = {"finetune_lora", "Llama-3.1-8B", "--gpu=l40s", "--gpus=8",
                   "--train.max_seq_length=512"};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words, 0);
  };
  const json open = with({}), shards = with({"--strategy=zero3"}), whole = with({"--strategy=ddp"});
  const auto speed = [](const json& out) { return out["time"]["tokens_per_second"].get<double>(); };
  EXPECT_GT(speed(open), 2 * speed(shards));
  EXPECT_GE(speed(open), speed(whole));
}

TEST_F(Plan, OfAGpuThatIsTooSmallForCudaIsRefused) {
  expect_refused(2, {"plan", "Llama-3.2-1B", "--accelerator=cuda", "--memory=500MiB"},
                 {"--memory 500MiB is less than CUDA itself takes on a GPU, about 896 MiB"});
}

TEST_F(Plan, OfAGpuThatIsNotHereMustBeToldItsMemory) {
  if (cuda_present()) GTEST_SKIP() << "there is one here";
  expect_refused(2, {"plan", "Llama-3.2-1B", "--accelerator=cuda"},
                 {"there is no GPU here; name one", "--gpu h100-sxm", "--memory 80GiB"});
}

TEST_F(Plan, HostMemoryIsBesideAGpuAlone) {
  expect_refused(
      2, {"plan", "Llama-3.2-1B", "--accelerator=cpu", "--memory=80GiB", "--host-memory=80GiB"},
      {"--host-memory is for a GPU"});
}

}  // namespace
}  // namespace capstan::cli_test
