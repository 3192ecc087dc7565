// Times by data sheet are those of this program; a PyTorch program has a range of its own.

#include "plan_program.h"

namespace capstan::cli_test {
namespace {

class PlanBesidePyTorch : public Plan {
 protected:
  Words with(const Words& more) const {
    Words words = {"finetune_full", "Llama-3.2-1B", "--train.max_seq_length=512"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string said(const Words& more) const {
    Words words = with(more);
    words.insert(words.begin(), "plan");
    return unwrapped(run(words).out);
  }
};

TEST_F(PlanBesidePyTorch, TimesByDataSheetHaveARangeOfPyTorchToo) {
  const json time = plan(with({"--gpu=h100-sxm"}), 0)["time"];
  const double step = time["step_seconds"];
  ASSERT_TRUE(time.contains("pytorch"));
  const json& pytorch = time["pytorch"];
  EXPECT_EQ(pytorch["low_ratio"], 1.04) << "compiled, 7B";
  EXPECT_EQ(pytorch["high_ratio"], 1.29) << "compiled, 1.1B";
  EXPECT_NEAR(pytorch["low_seconds"].get<double>(), 0.85 * 1.04 * step, 1e-9);
  EXPECT_NEAR(pytorch["high_seconds"].get<double>(), 1.25 * 1.29 * step, 1e-9);
  expect_holds(said({"--gpu=h100-sxm"}), {"a PyTorch program (compiled): ",
                                          "1.04 to 1.29 times as long, as beside this one "
                                          "on an H200"});
  const json lora =
      plan({"finetune_lora", "Llama-3.2-1B", "--train.max_seq_length=512", "--gpu=h100-sxm"},
           0)["time"]["pytorch"];
  EXPECT_EQ(lora["high_ratio"], 2.40);
}

TEST_F(PlanBesidePyTorch, TimesOfACalibrationHaveTheirOwnRangeAlone) {
  write("gpu.json", R"({"format": "capstan calibration", "version": 3, "name": "a GPU",
      "accelerator": "cuda", "date": "2026-08-05", "seconds_per_call": 3e-06,
      "bytes_per_second": 4e12, "to_device_bytes_per_second": 5e10,
      "to_host_bytes_per_second": 5e10, "types": {"bf16": {"flops_per_second": {"product": 7e14,
      "head": 6e14, "attention": 4e14, "attention_backward": 3e14},
      "bytes_per_second": {"elementwise": 3e12, "optimizer": 3e12}}}})");
  const Words measured = {"--gpu=h200", "--calibration=gpu.json"};
  EXPECT_FALSE(plan(with(measured), 0)["time"].contains("pytorch"));
  EXPECT_EQ(said(measured).find("PyTorch"), std::string::npos);
}

}  // namespace
}  // namespace capstan::cli_test
