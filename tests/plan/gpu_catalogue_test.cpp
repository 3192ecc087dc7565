#include "plan/gpu_catalogue.h"

#include <gtest/gtest.h>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan {
namespace {

TEST(GpuCatalogue, HasTheDataSheets) {
  const GpuCatalogue all = gpu_catalogue();
  const GpuModel& v100 = all.named("v100-32");
  EXPECT_EQ(v100.capability, std::pair(7, 0));
  EXPECT_DOUBLE_EQ(v100.gigabytes, 32);
  EXPECT_EQ(v100.bytes, static_cast<int64_t>(31.7 * 0x1p30)) << "what CUDA has of it";
  EXPECT_DOUBLE_EQ(v100.port_gigabits, 100);
  EXPECT_DOUBLE_EQ(all.named("h200").port_gigabits, 400);
  EXPECT_DOUBLE_EQ(v100.narrow, 125e12);
  EXPECT_DOUBLE_EQ(v100.fp8, 0);
  EXPECT_DOUBLE_EQ(all.named("h100-sxm").bytes_per_second, 3350e9);
  EXPECT_DOUBLE_EQ(all.named("a100-80-sxm").best_product, 271e12);
  EXPECT_DOUBLE_EQ(v100.best_product, 0);
  EXPECT_EQ(all.named("a100-80-pcie").bridged, 2);
  EXPECT_EQ(all.named("a100-80-sxm").bridged, 0);
  EXPECT_EQ(all.named("b200").capability, std::pair(10, 0));
  for (const char* id : {"rtx6000-ada", "rtx-pro-6000",  "b300",         "gb200",
                         "gb300",       "h20",           "h800-sxm",     "h800-pcie",
                         "a800-40",     "a800-80-sxm",   "a800-80-pcie", "rtx3050",
                         "rtx3060",     "rtx3060-ti",    "rtx3070",      "rtx3070-ti",
                         "rtx3080",     "rtx3080-ti",    "rtx4060",      "rtx4060-ti",
                         "rtx4070",     "rtx4070-super", "rtx4070-ti",   "rtx4070-ti-super",
                         "rtx4080",     "rtx4080-super", "rtx5060",      "rtx5060-ti",
                         "rtx5070",     "rtx5070-ti",    "rtx5080",      "rtx5090",
                         "p100-sxm",    "p100-pcie"}) {
    const GpuModel& gpu = all.named(id);
    EXPECT_EQ(gpu.narrow > gpu.f32, gpu.capability >= std::pair(7, 0)) << id << ": tensor cores";
    EXPECT_GT(gpu.bytes_per_second, 0) << id;
    EXPECT_EQ(gpu.fp8 > 0, gpu.capability >= std::pair(8, 9)) << id;
    EXPECT_EQ(gpu.tf32 > 0, gpu.capability >= std::pair(8, 0)) << id;
  }
  for (const GpuModel& gpu : all.gpus) {
    EXPECT_FALSE(gpu.origin.empty()) << gpu.id;
    EXPECT_LT(gpu.best_product, gpu.narrow) << gpu.id;
    EXPECT_GT(gpu.bytes, static_cast<int64_t>(0.91 * gpu.gigabytes * 0x1p30)) << gpu.id;
    EXPECT_LT(gpu.bytes, static_cast<int64_t>(gpu.gigabytes * 0x1p30)) << gpu.id;
    EXPECT_EQ(all.reported_as("NVIDIA " + gpu.in_name), &gpu) << gpu.id << " is another's name";
  }
}

TEST(GpuCatalogue, KnowsTheNamesThatDriversReport) {
  const GpuCatalogue all = gpu_catalogue();
  const std::pair<const char*, const char*> names[] = {
      {"NVIDIA H200", "h200"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA GH200 480GB", "gh200-96"},
      {"NVIDIA A100-SXM4-80GB", "a100-80-sxm"},
      {"NVIDIA A100-SXM4-40GB", "a100-40-sxm"},
      {"Tesla V100-SXM2-32GB", "v100-32"},
      {"Tesla V100-PCIE-16GB", "v100-16"},
      {"NVIDIA H100 NVL", "h100-nvl"},
      {"NVIDIA GH200 144G HBM3e", "gh200-141"},
      {"NVIDIA A100 80GB PCIe", "a100-80-pcie"},
      {"Tesla T4", "t4"},
      {"Tesla P100-PCIE-16GB", "p100-pcie"},
      {"Tesla P100-SXM2-16GB", "p100-sxm"},
      {"NVIDIA H20", "h20"},
      {"NVIDIA A800-SXM4-80GB", "a800-80-sxm"},
      {"NVIDIA GB300", "gb300"},
      {"NVIDIA B300 SXM6 AC", "b300"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"},
      {"NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070-ti-super"},
      {"NVIDIA GeForce RTX 3080 Ti", "rtx3080-ti"},
      {"NVIDIA RTX A6000", "a6000"},
      {"NVIDIA GeForce RTX 4090", "rtx4090"}};
  for (const auto& [name, id] : names) {
    const GpuModel* const found = all.reported_as(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->id, id) << name;
  }
  for (const char* name : {"NVIDIA L40", "NVIDIA A1000", "NVIDIA GeForce RTX 3090 Ti",
                           "NVIDIA GeForce RTX 4090 Laptop GPU", "ARM, 2 threads", ""})
    EXPECT_EQ(all.reported_as(name), nullptr) << name;
}

TEST(GpuCatalogue, FiguresWithoutASourceAreMarked) {
  const GpuCatalogue catalogue = parse_gpus(
      "gpus: {a: {capability: 9.0, memory: 80, memory_bandwidth: 3350†, f32: 67, power: 7e2†}}",
      "");
  const GpuModel& gpu = catalogue.gpus[0];
  EXPECT_EQ(gpu.unsourced, (std::vector<std::string>{"memory_bandwidth", "power"}));
  EXPECT_DOUBLE_EQ(gpu.bytes_per_second, 3350e9);
  EXPECT_DOUBLE_EQ(gpu.watts, 700);
  EXPECT_EQ(gpu.mark({"f32", "memory"}), "");
  EXPECT_EQ(gpu.mark({"f32", "power"}), "†");
  EXPECT_TRUE(gpu_catalogue().named("h100-sxm").unsourced.empty());
  EXPECT_FALSE(gpu_catalogue().named("rtx4070").unsourced.empty());
}

TEST(GpuCatalogue, MachinesThatHoldFewGpusAreSeveral) {
  const GpuCatalogue all = gpu_catalogue();
  using Placed = std::pair<int64_t, int64_t>;
  EXPECT_EQ(all.named("gh200-96").placed(8, 1), Placed(1, 8));
  EXPECT_EQ(all.named("gh200-96").placed(2, 3), Placed(1, 6));
  EXPECT_EQ(all.named("gb200").placed(8, 1), Placed(4, 2));
  EXPECT_EQ(all.named("gb200").placed(6, 1), Placed(3, 2));
  EXPECT_EQ(all.named("gb200").placed(2, 1), Placed(2, 1));
  EXPECT_EQ(all.named("h200").placed(64, 1), Placed(64, 1));
  EXPECT_TRUE(all.named("gb300").joins_machines());
  EXPECT_FALSE(all.named("gh200-141").joins_machines());
  EXPECT_FALSE(all.named("a100-80-pcie").joins_machines());
}

TEST(GpuCatalogue, AFileOfTheUsersAddsAndReplaces) {
  const TempFolder folder;
  const auto file = folder.write(
      "mine.yaml",
      "date: 2027-01-02\ngpus:\n"
      "  h200: {capability: 9.0, memory: 120, memory_bandwidth: 4000, f32: 60, power: 500}\n"
      "  mine: {capability: 13.5, memory: 1.5, memory_bandwidth: 1, f32: 1, power: 1}\n");
  const GpuCatalogue before = gpu_catalogue();
  const Variable variable("CAPSTAN_CATALOGUE", file.c_str());
  const GpuCatalogue all = gpu_catalogue();
  EXPECT_EQ(all.named("mine").date, "2027-01-02");
  EXPECT_NE(all.named("t4").date, "2027-01-02");
  EXPECT_EQ(all.gpus.size(), before.gpus.size() + 1);
  EXPECT_EQ(all.named("h200").bytes, static_cast<int64_t>(0.98 * 120 * 0x1p30));
  EXPECT_EQ(all.named("mine").capability, std::pair(13, 5));
  EXPECT_EQ(all.named("mine").origin, file.string());
  EXPECT_EQ(all.named("t4"), before.named("t4"));
}

TEST(GpuCatalogue, WhatIsWrongIsToldWithItsPlace) {
  const auto refused = [](const char* yaml) {
    return message_of(Fault::file, [&] { parse_gpus(yaml, "g.yaml"); });
  };
  EXPECT_EQ(refused("gpus: {a: {capability: 9.0, colour: 3}}"),
            "g.yaml:1:29: a: colour: no such key");
  EXPECT_EQ(refused("gpus:\n  a: {memory: 3}"),
            "g.yaml:2:6: a: capability: expected a number, found none");
  EXPECT_EQ(refused("gpus:\n  a: {capability: nine}"),
            "g.yaml:2:19: a: capability: expected a number from 1 to 100, found 'nine'");
  EXPECT_EQ(refused("gpus:\n  a: {capability: 1e300}"),
            "g.yaml:2:19: a: capability: expected a number from 1 to 100, found '1e300'");
  EXPECT_EQ(refused("gpus: {a: {capability: 9, memory: many†}}"),
            "g.yaml:1:35: a: memory: expected a number from 1 to 1000000000, found 'many'");
  EXPECT_EQ(refused("gpus: {a: {capability: 9†}}"),
            "g.yaml:1:24: a: capability: expected a number from 1 to 100, found '9†'");
  EXPECT_EQ(refused("gpus: {a: {capability: 9, memory: 8, power: 1, processor: x86}}"),
            "g.yaml:1:48: a: processor: expected arm or any, found 'x86'");
  const std::string row = "{capability: 9, memory: 1, memory_bandwidth: 1, f32: 1, power: 1}";
  EXPECT_EQ(refused(("gpus:\n  a: " + row + "\n  a: " + row).c_str()),
            "g.yaml:3:3: gpus: expected a name, found 'a' again");
  EXPECT_EQ(refused(""), "g.yaml: expected a catalogue of GPUs, found nothing");
  EXPECT_EQ(refused("gpus: 3"), "g.yaml:1:7: gpus: expected a mapping");
  EXPECT_EQ(refused("3"), "g.yaml:1:1: a catalogue of GPUs: expected a mapping");
  EXPECT_TRUE(refused("gpus: {").starts_with("g.yaml:1:")) << refused("gpus: {");
  EXPECT_EQ(message_of(Fault::usage, [] { gpu_catalogue().named("a100-80"); }),
            "gpu: 'a100-80' may be any of a100-80-pcie, a100-80-sxm; name one of them");
  EXPECT_NE(message_of(Fault::usage, [] { gpu_catalogue().named("h10-sxm"); })
                .find("did you mean h100-sxm?"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
