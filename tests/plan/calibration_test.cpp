#include "plan/calibration.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "machine/name.h"
#include "model/known_models.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/variable.h"
#include "train/setup.h"

namespace capstan {
namespace {

Calibration some_gpu() {
  Calibration c;
  c.name = "NVIDIA H200";
  c.device = Device::cuda;
  c.date = "2026-08-05";
  c.seconds_per_call = 3e-6;
  c.bytes_per_second = 4e12;
  c.to_device_per_second = 50e9;
  c.to_host_per_second = 40e9;
  c.bus_per_second = 75e9;
  TypeRates& bf16 = c.types["bf16"];
  bf16.rates = {600e12, 500e12, 300e12, 200e12, 3e12, 2e12, 0};
  bf16.attention_bytes = 2e12, bf16.attention_backward_bytes = 1e12;
  bf16.step_seconds = 0.11;
  bf16.step_predicted = 0.1;
  c.types["fp8"].rates = {900e12, 500e12, 300e12, 200e12, 3e12, 2e12, 0};
  c.types["f32"].rates = {50e12, 40e12, 30e12, 20e12, 3e12, 2e12, 0};
  return c;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Calibrations, AreReadAsTheyWereWritten) {
  const Calibration gpu = some_gpu();
  EXPECT_EQ(parse_calibration(calibration_json(gpu), "c"), gpu);
  Calibration cpu = gpu;
  cpu.device = Device::cpu;
  cpu.to_device_per_second = cpu.to_host_per_second = cpu.bus_per_second = 0;
  EXPECT_EQ(parse_calibration(calibration_json(cpu), "c"), cpu);
  StepCosts& costs = cpu.precisions["bf16-true"];
  for (size_t i = 0; i < kOpKinds; ++i) costs.calls[i] = {1e-6 * static_cast<double>(i), 0, 2e-11};
  costs.seconds = 0.2, costs.predicted = 0.1;
  EXPECT_EQ(parse_calibration(calibration_json(cpu), "c"), cpu);
  cpu.kernels = "OpenBLAS 0.3.21 SkylakeX";
  EXPECT_EQ(parse_calibration(calibration_json(cpu), "c"), cpu);
  EXPECT_NE(message_of(
                Fault::file,
                [&] { parse_calibration(replaced(calibration_json(cpu), "2e-11", "-2e-11"), "c"); })
                .find("seconds_per_byte: expected a number from 0 to 1, found -2e-11"),
            std::string::npos);
  Calibration several = gpu;
  several.networks[2] = {.seconds_per_message = 2e-5, .bytes_per_second = 3e10};
  several.networks[8] = {.seconds_per_message = 4e-5, .bytes_per_second = 2e10};
  EXPECT_EQ(parse_calibration(calibration_json(several), "c"), several);
  EXPECT_NE(message_of(Fault::file,
                       [&] {
                         parse_calibration(
                             replaced(calibration_json(several), "\"8\": {", "\"65\": {"), "c");
                       })
                .find("65: no such key"),
            std::string::npos);
  EXPECT_EQ(network_of(several, 4, 1), several.networks[2]) << "the nearest";
  EXPECT_EQ(network_of(several, 64, 1), several.networks[8]);
  EXPECT_FALSE(network_of(gpu, 2, 1));
  EXPECT_FALSE(network_of(several, 16, 2)) << "of one machine alone";
  EXPECT_FALSE(all_measured(several, 16, 2));
  EXPECT_TRUE(all_measured(several, 16, 1) && all_measured(gpu, 1, 1));
  several.networks_across[16] = {.seconds_per_message = 6e-5, .bytes_per_second = 1e10};
  EXPECT_EQ(parse_calibration(calibration_json(several), "c"), several);
  EXPECT_EQ(network_of(several, 8, 2), several.networks_across[16]);
  EXPECT_TRUE(all_measured(several, 16, 2));
  several.device = Device::cpu;
  several.to_device_per_second = several.to_host_per_second = several.bus_per_second = 0;
  several.precisions["32-true"] = {.calls = {}, .seconds = 1, .predicted = 1};
  const StepCosts& alone = several.precisions["32-true"];
  EXPECT_EQ(costs_of(several, 8, Precision::f32_true), &alone) << "not measured on several";
  several.together[8]["32-true"] = {.calls = {}, .seconds = 2, .predicted = 1};
  several.together[2]["bf16-true"] = {.calls = {}, .seconds = 3, .predicted = 1};
  const std::string text = calibration_json(several);
  EXPECT_EQ(parse_calibration(text, "c"), several);
  EXPECT_EQ(costs_of(several, 2, Precision::f32_true), &several.together[8]["32-true"])
      << "the nearest that has it";
  EXPECT_EQ(costs_of(several, 8, Precision::bf16_true), &several.together[2]["bf16-true"]);
  EXPECT_EQ(costs_of(several, 1, Precision::f32_true), &alone) << "nobody else computes";
  EXPECT_EQ(costs_of(several, 1, Precision::bf16_true), nullptr);
  several.together[2].clear();
  EXPECT_EQ(parse_calibration(calibration_json(several), "c").together.count(2), 0U);
  const std::string of_ranks = text.substr(text.find("\"networks\""));
  const std::string wrong =
      replaced(of_ranks, "\"seconds_per_flop\": 0.0", "\"seconds_per_flop\": 2");
  const std::string message =
      message_of(Fault::file, [&] { parse_calibration(replaced(text, of_ranks, wrong), "c"); });
  EXPECT_NE(message.find("seconds_per_flop: expected a number from 0 to 1, found 2"),
            std::string::npos)
      << message;
  const auto before =
      std::count(text.begin(), text.begin() + std::ssize(text) - std::ssize(of_ranks), '\n');
  EXPECT_GT(std::stol(message.substr(2)), before)
      << "the place is in the costs of ranks: " << message;
  const TempFolder folder;
  const auto path = folder.path() / "new" / "c.json";
  write_calibration(path, gpu);
  EXPECT_EQ(read_calibration(path), gpu);
}

TEST(Calibrations, ThatAreWrongAreRefusedWithTheirPlace) {
  const std::string good = calibration_json(some_gpu());
  const auto refused = [&](const std::string& from, const std::string& to) {
    const std::string text = replaced(good, from, to);
    return message_of(Fault::file, [&] { parse_calibration(text, "c.json"); });
  };
  const auto expect = [&](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("c.json:")) << message;
  };
  expect(refused("\"version\": 3", "\"version\": 2"), "c.json:3:3: version: expected 3, found 2");
  expect(refused("capstan calibration", "diary"), "c.json:2:3: format: ");
  expect(refused("2026-08-05", "yesterday"), "c.json:6:3: date: expected YYYY-MM-DD");
  expect(refused("\"cuda\"", "\"tpu\""), "accelerator: expected cpu or cuda, found \"tpu\"");
  expect(refused("\"cuda\"", "\"cpu\""), "to_device_bytes_per_second: allowed only for a GPU");
  expect(refused("3e-06", "-1"),
         "seconds_per_call: expected a number from 1e-12 to 1e21, found -1");
  expect(refused("3e-06", "\"fast\""), "found \"fast\"");
  expect(refused("\"head\"", "\"heat\""), "heat: no such key");
  expect(refused("\"head\"", "\"product\""), "product\" appears twice");
  expect(refused("\"bf16\"", "\"fp4\""), "fp4: no such key");
  expect(refused("\"date\"", "\"data\""), "data: no such key");
  expect(refused("    \"f32\"", "    \"f32\": 3,\n\"x\""), "x: no such key");
  EXPECT_NE(message_of(Fault::file, [&] { parse_calibration("{}", "c"); }).find("format: expected"),
            std::string::npos);
  for (size_t cut = 0; cut < good.size() - 2; cut += 7)
    message_of(Fault::file, [&] { parse_calibration(good.substr(0, cut), "c.json"); });
}

TEST(Calibrations, ThatLackARateAreRefused) {
  const std::string good = calibration_json(some_gpu());
  for (const char* key : {"\"product\"", "\"attention_backward\"", "\"optimizer\"", "\"types\"",
                          "\"to_host_bytes_per_second\"", "\"predicted_seconds\"", "\"name\""}) {
    // A key of another name is unknown; the same key under null has no value.
    const std::string text =
        replaced(good, std::string(key) + ":", std::string(key) + ": null, \"z\":");
    message_of(Fault::file, [&] { parse_calibration(text, "c.json"); });
  }
}

TEST(Calibrations, HaveOneFileForEachName) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  EXPECT_EQ(calibration_path("NVIDIA H200"), folder / "nvidia-h200.calibration.json");
  EXPECT_EQ(calibration_path("../x/y"), folder / "x-y.calibration.json");
  EXPECT_NE(machine_name(Device::cpu).find(" thread"), std::string::npos);
}

TEST(Calibrations, AreNamedByTheirFileOrTheirMachine) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  const Calibration c = some_gpu();
  EXPECT_NE(message_of(Fault::usage, [] { named_calibration("NVIDIA H200"); }).find("none at all"),
            std::string::npos);
  write_calibration(calibration_path(c.name), c);
  write_calibration(folder / "elsewhere" / "x.json", c);
  for (const std::string& name : {std::string("NVIDIA H200"), std::string("nvidia-h200"),
                                  (folder / "elsewhere" / "x.json").string()})
    EXPECT_EQ(named_calibration(name), c) << name;
  EXPECT_NE(message_of(Fault::usage, [] { named_calibration("h100"); })
                .find("no file 'h100', and no calibration of a machine of that name"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::usage, [] { named_calibration("h100"); }).find("\"NVIDIA H200\""),
            std::string::npos);
  message_of(Fault::file, [&] { named_calibration((folder / "no.json").string()); });
  Calibration other = c;
  other.name = "NVIDIA H100 PCIe";
  write_calibration(folder / "of-a-friend.calibration.json", other);
  EXPECT_EQ(named_calibration("NVIDIA H100 PCIe"), other) << "whatever the file is called";
}

TEST(Calibrations, OfThisMachineAreFoundAndBadOnesLeft) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  EXPECT_FALSE(find_calibration(Device::cpu));
  Calibration c = some_gpu();
  c.device = Device::cpu;
  c.to_device_per_second = c.to_host_per_second = c.bus_per_second = 0;
  c.name = machine_name(Device::cpu);
  const auto path = calibration_path(c.name);
  write_calibration(path, c);
  EXPECT_EQ(find_calibration(Device::cpu), c);
  Calibration other = c;
  other.name = "another processor";
  write_calibration(path, other);
  EXPECT_FALSE(find_calibration(Device::cpu)) << "it is of another machine";
  write_text(path, calibration_json(c).substr(0, 100));
  EXPECT_FALSE(find_calibration(Device::cpu)) << "it is damaged";
}

TEST(CostModels, OfACalibrationHaveTheRatesOfTheRunsType) {
  TrainOptions o;
  o.device = Device::cuda;
  o.precision = Precision::bf16_mixed;
  const CostModel m = cost_model(some_gpu(), o);
  EXPECT_DOUBLE_EQ(m.factor, 1.1);
  const auto seconds = [&](OpKind kind, const Cost& cost) { return m.seconds(kind, cost) / 1.1; };
  EXPECT_DOUBLE_EQ(seconds(OpKind::product, {.flops = 600e12, .bytes = 1}), 1 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::product, {.flops = 1, .bytes = 8e12}), 2 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::head, {.flops = 500e12}), 1 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::attention, {.flops = 300e12, .bytes = 2e12}), 2 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::attention_backward, {.flops = 200e12, .bytes = 2e12}), 3 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::elementwise, {.flops = 1e18, .bytes = 3e12}), 1 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::optimizer, {.flops = 1e18, .bytes = 2e12}), 1 + 3e-6);
  EXPECT_DOUBLE_EQ(seconds(OpKind::copy, {.bytes = 4e12}), 1 + 3e-6);
  o.precision = Precision::fp8_mixed;
  const CostModel fp8 = cost_model(some_gpu(), o);
  EXPECT_DOUBLE_EQ(fp8.seconds(OpKind::product, {.flops = 900e12}), 1 + 3e-6);
  EXPECT_DOUBLE_EQ(fp8.seconds(OpKind::head, {.flops = 500e12}), 1 + 3e-6);
  o.precision = Precision::f32_true;
  EXPECT_DOUBLE_EQ(cost_model(some_gpu(), o).factor, 1) << "no step was measured in f32";
}

// As in LitGPT: 32-true multiplies in TF32 on a GPU that has it, unless the recipe asks for more.
TEST(CostModels, Of32TrueOnAGpuMultiplyInTf32) {
  Recipe r = defaults_of(Task::finetune_full);
  r.precision = Precision::f32_true;
  r.accelerator = Accelerator::cuda;
  const auto options = [&] {
    return train_options(r, Task::finetune_full, known_model("TinyLlama-1.1B").value());
  };
  TrainOptions o = options();
  o.has_bf16 = true;
  EXPECT_EQ(type_of_products(o), "tf32");
  EXPECT_EQ(precision_name(o), "32-true (TF32)");
  o.has_bf16 = false;
  EXPECT_EQ(type_of_products(o), "f32") << "GPUs before Ampere";
  EXPECT_EQ(precision_name(o), "32-true");
  r.matmul_precision = MatmulPrecision::highest;
  EXPECT_EQ(type_of_products(options()), "f32");
  r.matmul_precision.reset();
  r.accelerator = Accelerator::cpu;
  EXPECT_EQ(type_of_products(options()), "f32");
  r.accelerator = Accelerator::cuda;
  r.precision = Precision::f16_mixed;
  EXPECT_EQ(type_of_products(options()), "f16");
}

TEST(CostModels, AreRefusedForAnotherDeviceAndForTypesThatWereNotMeasured) {
  TrainOptions o;
  EXPECT_NE(message_of(Fault::usage, [&] { cost_model(some_gpu(), o); }).find("--accelerator cuda"),
            std::string::npos);
  o.device = Device::cuda;
  o.tf32 = true;
  EXPECT_NE(message_of(Fault::usage, [&] { cost_model(some_gpu(), o); }).find("no rates for tf32"),
            std::string::npos);
  o.precision = Precision::fp8_mixed;
  Calibration older = some_gpu();
  older.types.erase("fp8");
  EXPECT_NE(message_of(Fault::usage, [&] { cost_model(older, o); }).find("no rates for fp8"),
            std::string::npos);
}

TEST(CostModels, RanksOfACpuAreInEachOthersWay) {
  TrainOptions o;
  Calibration c = some_gpu();
  c.device = Device::cpu;
  const auto costs = [](double per_flop, double factor) {
    StepCosts s{.calls = {}, .seconds = factor, .predicted = 1};
    s.calls.fill({1e-3, per_flop, 0});
    return s;
  };
  c.precisions["32-true"] = costs(1e-9, 1);
  c.together[4]["32-true"] = costs(3e-9, 1.5);
  const Cost billion{.flops = 1e9, .bytes = 1e9};
  EXPECT_DOUBLE_EQ(cost_model(c, o).seconds(OpKind::product, billion), 1 + 1e-3);
  o.ranks = {0, 4};
  EXPECT_DOUBLE_EQ(cost_model(c, o).seconds(OpKind::product, billion), 1.5 * (3 + 1e-3));
  o.machines = 4;
  EXPECT_DOUBLE_EQ(cost_model(c, o).seconds(OpKind::product, billion), 1 + 1e-3)
      << "each has a machine to itself";
}

TEST(CostModels, APagedOptimizersStateCrossesTheBus) {
  TrainOptions o;
  o.device = Device::cuda;
  o.optimizer.paged = true;
  // f32: of 32 bytes, 4 of them for the norm of the gradients, 16 are state, half of them in each
  // direction.
  Calibration c = some_gpu();
  EXPECT_NEAR(cost_model(c, o).seconds(OpKind::optimizer, {.bytes = 32e9}), 16.0 / 75, 1e-4);
  c.bus_per_second = 0;  // the slower direction is known
  EXPECT_NEAR(cost_model(c, o).seconds(OpKind::optimizer, {.bytes = 32e9}), 8.0 / 40, 1e-4);
}

}  // namespace
}  // namespace capstan
