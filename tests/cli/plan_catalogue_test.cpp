// What a plan says of a GPU by its row in the catalogue: figures without a source, what is not
// known, and machines that hold few GPUs.

#include <algorithm>
#include <optional>

#include "plan_program.h"
#include "support/variable.h"

namespace capstan::cli_test {
namespace {

class PlanCatalogue : public Plan {
 protected:
  Words with(const Words& more) const {
    Words words = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512",
                   "--train.global_batch_size=8", "--train.micro_batch_size=1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string text(const Words& more, int code = 0) const {
    Words words = with(more);
    words.insert(words.begin(), "plan");
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err;
    return unwrapped(o.out + o.err);
  }
  // Rows of the user's own, for the tests of this process.
  void take_rows(const std::string& rows) {
    write("mine.yaml", "date: 2026-11-01\norigin: my notes\ngpus:\n" + rows);
    own_.emplace("CAPSTAN_CATALOGUE", at("mine.yaml").c_str());
  }

 private:
  std::optional<Variable> own_;
};

TEST_F(PlanCatalogue, FiguresWithoutASourceCarryADagger) {
  const std::string l4 = text({"--gpu=l4", "--precision=bf16-true"});
  expect_holds(l4, {"by the data sheet of l4† of", "of 121† TFLOP/s",
                    "† general knowledge, not looked up in a source: memory_bandwidth, f32"});
  EXPECT_EQ(text({"--gpu=h100-sxm"}).find("†"), std::string::npos);
  expect_holds(text({"--gpu=rtx5080", "--precision=bf16-true"}), {"on rtx5080 (15.7 GiB†)"});
  const json out = plan(with({"--gpu=l4", "--precision=bf16-true"}), 0);
  const auto row = std::find_if(out["sources"].begin(), out["sources"].end(),
                                [](const json& source) { return source["what"] == "l4"; });
  ASSERT_NE(row, out["sources"].end());
  EXPECT_EQ((*row)["value"], "22.0 GiB of 24 GB, 300† GB/s, 121† TFLOP/s in 16 bits, 72† W");
  expect_holds((*row)["origin"], {"vendors' data sheets; † general knowledge"});
  expect_holds(text({"--machines=l4,h100-sxm", "--precision=bf16-true"}),
               {"1 × l4†", "†: by figures that are general knowledge"});
}

TEST_F(PlanCatalogue, ARowOfTheUsersWithLessPowerTakesLonger) {
  const std::string h100 =
      "{capability: 9.0, memory: 80, memory_bandwidth: 3350, f32: 67, tf32: 494.5, "
      "narrow: 989, fp8: 1979, link: 900, best_product: 794, power: ";
  take_rows("  full: " + h100 + "700}\n  limited: " + h100 + "350}\n");
  const json full = plan(with({"--gpu=full"}), 0), limited = plan(with({"--gpu=limited"}), 0);
  EXPECT_GT(limited["time"]["step_seconds"], 1.25 * full["time"]["step_seconds"].get<double>());
  EXPECT_EQ(limited["memory"], full["memory"]);
}

TEST_F(PlanCatalogue, WithoutBandwidthOrRateThereIsFitAndNoTime) {
  take_rows(
      "  bare: {capability: 8.6, memory: 80, power: 300}\n"
      "  slow: {capability: 8.6, memory: 80, power: 300, narrow: 100, f32: 10}\n"
      "  f32: {capability: 8.6, memory: 80, power: 300, memory_bandwidth: 900, f32: 10}\n");
  const auto expect_no_time = [&](const char* gpu, const char* why) {
    const std::string option = std::string("--gpu=") + gpu;
    for (const char* gpus : {"--gpus=1", "--gpus=4"}) {
      const json out = plan(with({option, gpus}), 0);
      EXPECT_FALSE(out.contains("time")) << gpu;
      EXPECT_GT(out["memory"]["peak_bytes"], 0);
      expect_holds(text({option, gpus}), {"fits",
                                          "the time of a step is unknown: the catalogue "
                                          "has no ",
                                          why});
    }
    // More and fewer of them, and the searches, know no times either, and none of it is an error.
    const fs::path page = at("page.html");
    plan(with({option, "--gpus=2", "--html=" + page.string()}), 0);
    EXPECT_TRUE(fs::exists(page));
    expect_refused(2,
                   [&] {
                     Words words = with({option, "--gpus=2", "--search"});
                     words.insert(words.begin(), "plan");
                     return words;
                   }(),
                   {"--search compares times"});
    expect_holds(text({std::string("--machines=2x") + gpu}, 3), {"nobody knows how fast"});
  };
  expect_no_time("bare", "memory_bandwidth and no rate of bf16 products of bare");
  expect_no_time("slow", "memory_bandwidth of slow");
  expect_no_time("f32", "rate of bf16 products of f32");
  const json known =
      plan(with({"--gpu=f32", "--precision=32-true", "--matmul_precision=highest"}), 0);
  EXPECT_TRUE(known.contains("time")) << "f32 has its rate";
}

// A GH200's link is to its processor; machines with it have one.
TEST_F(PlanCatalogue, Gh200IsArmAndAloneOnItsMachine) {
  const json eight = plan(with({"--gpu=gh200-96", "--gpus=8"}), 0);
  EXPECT_EQ(eight["run"]["processor"], "arm");
  EXPECT_EQ(eight["run"]["machines"], 8);
  EXPECT_EQ(eight["run"]["gpus"], 8);
  EXPECT_EQ(eight["run"]["between_machines"], 50e9) << "by its ports";
  const json said = plan(with({"--gpu=gh200-96", "--gpus=1", "--nodes=8"}), 0);
  EXPECT_EQ(eight["time"]["step_seconds"], said["time"]["step_seconds"]);
  EXPECT_EQ(eight["memory"], said["memory"]);
  const json h200 = plan(with({"--gpu=h200", "--gpus=8"}), 0);
  EXPECT_GT(eight["time"]["step_seconds"], 3 * h200["time"]["step_seconds"].get<double>());
  expect_holds(text({"--gpu=gh200-96", "--gpus=8"}),
               {"machines with gh200-96 have 1 GPU: planned as 8 machines of 1, with a network",
                "machines with gh200-96 have Arm processors: they take Capstan's package for Arm"});
  EXPECT_EQ(text({"--gpu=h200"}).find("Arm"), std::string::npos);
  expect_holds(text({"--machines=8xgh200-96"}), {"8 × 1 × gh200-96", "taken for 8 machines of 1"});
}

TEST_F(PlanCatalogue, ServersOfASiteHaveNoMoreGpusThanTheyHold) {
  const auto server = [&](const char* gpu) {
    const Outcome o = run({"plan", "site", gpu, "--gpus=16", "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out)["servers"]["gpus_per_server"].get<int>();
  };
  EXPECT_EQ(server("--gpu=gh200-96"), 1);
  EXPECT_EQ(server("--gpu=gb200"), 4);
  EXPECT_EQ(server("--gpu=h200"), 8);
}

// NVLink joins the GPUs of a rack; each machine has four.
TEST_F(PlanCatalogue, Gb200IsArmWithFourOnAMachineAndNvlinkBetweenThem) {
  const json eight = plan(with({"--gpu=gb200", "--gpus=8"}), 0);
  EXPECT_EQ(eight["run"]["machines"], 2);
  EXPECT_EQ(eight["run"]["processor"], "arm");
  EXPECT_EQ(eight["run"]["between_machines"], 720e9) << "80% of a link of 900 GB/s each way";
  const json networked = plan(with({"--gpu=gb200", "--gpus=8", "--network=50"}), 0);
  EXPECT_EQ(networked["run"]["between_machines"], 50e9) << "the user knows better";
  EXPECT_GT(networked["time"]["step_seconds"], eight["time"]["step_seconds"]);
  expect_holds(text({"--gpu=gb200", "--gpus=8"}),
               {"planned as 2 machines of 4, with NVLink between up to 72 GPUs"});
}

TEST_F(PlanCatalogue, P100TakesF16AndIsSaidNotToRun) {
  const json out = plan(with({"--gpu=p100-sxm", "--strategy=offload"}), 0);
  EXPECT_EQ(out["run"]["precision"], "16-mixed");
  EXPECT_TRUE(out.contains("time"));
  expect_holds(text({"--gpu=p100-sxm", "--strategy=offload"}),
               {"Capstan does not run on p100-sxm: it needs compute capability 7.0 or newer"});
}

TEST_F(PlanCatalogue, ANameOfSeveralOffersThem) {
  expect_refused(2, {"plan", "Llama-3.2-1B", "--gpu=a100-80"},
                 {"'a100-80' may be any of a100-80-pcie, a100-80-sxm; name one of them"});
  expect_refused(2, {"plan", "where", "--gpu=h100"}, {"h100-pcie, h100-nvl, h100-sxm"});
}

}  // namespace
}  // namespace capstan::cli_test
