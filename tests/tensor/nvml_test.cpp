#include "tensor/nvml.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tensor/device.h"

namespace capstan {
namespace {

TEST(Nvml, AnAbsentLibraryIsNoFailure) {
  const Nvml nvml("libno-such-library.so.1");
  EXPECT_FALSE(nvml.present());
  EXPECT_NE(nvml.why_not().find("libno-such-library.so.1"), std::string::npos) << nvml.why_not();
  EXPECT_EQ(nvml.driver_version(), "");
  EXPECT_EQ(nvml.cuda_version(), 0);
  EXPECT_EQ(nvml.count(), 0);
  EXPECT_FALSE(nvml.find("0000:19:00.0"));
  EXPECT_EQ(nvml.facts(0).name, "");
  EXPECT_FALSE(nvml.read(0).memory);
}

TEST(Nvml, ALibraryOfAnotherKindIsNone) {
  const Nvml nvml("libc.so.6");
  EXPECT_EQ(nvml.why_not(), "libc.so.6: has no nvmlInit_v2");
}

TEST(Nvml, WhatTheDriverSaysIsTheReason) {
  ::setenv("FAKE_NVML_BROKEN", "1", 1);
  const Nvml nvml(CAPSTAN_FAKE_NVML);
  ::unsetenv("FAKE_NVML_BROKEN");
  EXPECT_EQ(nvml.why_not(), "Driver Not Loaded");
}

TEST(Nvml, ReadsWhatACardTellsAndLeavesTheRestOut) {
  const Nvml nvml(CAPSTAN_FAKE_NVML);
  ASSERT_TRUE(nvml.present()) << nvml.why_not();
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
  EXPECT_EQ(nvml.cuda_version(), 13000);
  ASSERT_EQ(nvml.count(), 1);
  EXPECT_EQ(nvml.find("0000:19:00.0"), 0);
  EXPECT_FALSE(nvml.find("0000:20:00.0"));
  const GpuFacts f = nvml.facts(0);
  EXPECT_EQ(f.name, "NVIDIA Imaginary");
  EXPECT_EQ(f.capability, std::pair(9, 0));
  ASSERT_TRUE(f.memory);
  EXPECT_EQ(f.memory->total, 1000);
  EXPECT_EQ(f.memory->free, 600);
  EXPECT_EQ(f.memory->used, 400);
  ASSERT_EQ(f.processes.size(), 100u) << "more than a first guess has room for";
  EXPECT_FALSE(f.processes.front().bytes);
  EXPECT_EQ(f.processes.back().bytes, 300);
  EXPECT_EQ(f.watts, 512.5);
  EXPECT_EQ(f.watts_limit, 700);
  EXPECT_FALSE(f.watts_default);
  EXPECT_EQ(f.celsius, 41);
  EXPECT_FALSE(f.celsius_slowdown);
  EXPECT_FALSE(f.ecc_uncorrected);
  EXPECT_EQ(f.mhz_most, 1980);
  ASSERT_TRUE(f.throttling);
  EXPECT_TRUE(f.throttling->power && f.throttling->hardware);
  EXPECT_FALSE(f.throttling->idle || f.throttling->thermal || f.throttling->settings);
  ASSERT_TRUE(f.pcie);
  EXPECT_EQ(f.pcie->width, 8);
  EXPECT_FALSE(f.pcie_most);
  EXPECT_EQ(nvml.facts(1).name, "") << "there is no such card";
}

TEST(Nvml, ReadsThisProcessOfMany) {
  const GpuReading r = Nvml(CAPSTAN_FAKE_NVML).read(0);
  EXPECT_EQ(r.process_bytes, 300);
  EXPECT_EQ(r.busy, 0.75);
  EXPECT_EQ(r.celsius, 41);
}

TEST(Nvml, ReadsClockPowerAndWhatHoldsThem) {
  const GpuReading r = Nvml(CAPSTAN_FAKE_NVML).read(0);
  EXPECT_EQ(r.mhz, 1450);
  EXPECT_EQ(r.watts, 512.5);
  EXPECT_EQ(r.watts_limit, 700);
  EXPECT_EQ(r.joules, 5'000'000'000.5) << "more than 32 bits of millijoules";
  ASSERT_TRUE(r.throttling);
  EXPECT_TRUE(r.throttling->power && r.throttling->hardware);
}

TEST(Nvml, KnowsEachReasonByItsBit) {
  const Nvml nvml(CAPSTAN_FAKE_NVML);
  // idle, power, thermal, hardware, settings
  const auto with = [&](const char* bits) {
    ::setenv("FAKE_NVML_REASONS", bits, 1);
    const auto found = nvml.read(0).throttling;
    ::unsetenv("FAKE_NVML_REASONS");
    const Throttling t = found.value();
    return std::vector<bool>{t.idle, t.power, t.thermal, t.hardware, t.settings};
  };
  EXPECT_EQ(with("0x0"), (std::vector<bool>{0, 0, 0, 0, 0}));
  EXPECT_EQ(with("0x1"), (std::vector<bool>{1, 0, 0, 0, 0}));
  EXPECT_EQ(with("0x2"), (std::vector<bool>{0, 0, 0, 0, 1}));
  EXPECT_EQ(with("0x4"), (std::vector<bool>{0, 1, 0, 0, 0}));
  EXPECT_EQ(with("0x8"), (std::vector<bool>{0, 0, 0, 1, 0}));
  EXPECT_EQ(with("0x20"), (std::vector<bool>{0, 0, 1, 0, 0}));
  EXPECT_EQ(with("0x40"), (std::vector<bool>{0, 0, 1, 0, 0}));
  EXPECT_EQ(with("0x80"), (std::vector<bool>{0, 0, 0, 1, 0}));
}

TEST(Nvml, AnOlderLibraryTellsItsReasonsAndLeavesOutTheRest) {
  const Nvml nvml(CAPSTAN_FAKE_NVML_OLDER);
  const GpuReading r = nvml.read(0);
  ASSERT_TRUE(r.throttling) << "they have another name there";
  EXPECT_TRUE(r.throttling->power);
  EXPECT_EQ(r.mhz, 1450);
  EXPECT_FALSE(r.watts_limit);
  EXPECT_FALSE(r.joules);
  EXPECT_FALSE(nvml.facts(0).mhz_most);
  EXPECT_FALSE(nvml.facts(0).watts_limit);
}

TEST(Nvml, WhatACardRefusesIsAbsentAlone) {
  const Nvml nvml(CAPSTAN_FAKE_NVML);
  const auto without = [&](const char* function) {
    ::setenv("FAKE_NVML_REFUSES", function, 1);
    const GpuReading r = nvml.read(0);
    const GpuFacts f = nvml.facts(0);
    ::unsetenv("FAKE_NVML_REFUSES");
    return std::vector<bool>{r.mhz.has_value(), f.mhz_most.has_value(), r.watts_limit.has_value(),
                             r.throttling.has_value(), r.joules.has_value()};
  };
  EXPECT_EQ(without("nothing"), (std::vector<bool>{1, 1, 1, 1, 1}));
  EXPECT_EQ(without("nvmlDeviceGetClockInfo"), (std::vector<bool>{0, 1, 1, 1, 1}));
  EXPECT_EQ(without("nvmlDeviceGetMaxClockInfo"), (std::vector<bool>{1, 0, 1, 1, 1}));
  EXPECT_EQ(without("nvmlDeviceGetEnforcedPowerLimit"), (std::vector<bool>{1, 1, 0, 1, 1}));
  EXPECT_EQ(without("nvmlDeviceGetCurrentClocksEventReasons"), (std::vector<bool>{1, 1, 1, 0, 1}));
  EXPECT_EQ(without("nvmlDeviceGetTotalEnergyConsumption"), (std::vector<bool>{1, 1, 1, 1, 0}));
}

TEST(Nvml, KnowsTheGpuThatComputes) {
  const auto gpu = cuda_facts();
  if (!gpu) GTEST_SKIP() << "no GPU here";
  const Nvml nvml;
  if (!nvml.present()) GTEST_SKIP() << nvml.why_not();
  const auto card = nvml.find(gpu->bus_id);
  ASSERT_TRUE(card) << gpu->bus_id;
  const GpuFacts f = nvml.facts(*card);
  EXPECT_EQ(f.name, gpu->name);
  EXPECT_EQ(f.capability, gpu->capability);
  ASSERT_TRUE(f.memory);
  EXPECT_GT(f.memory->total, 0);
  EXPECT_LE(f.memory->free, f.memory->total);
  const GpuReading r = nvml.read(*card);
  EXPECT_GT(f.mhz_most.value_or(1000), 100) << "not in MHz";
  EXPECT_GT(r.mhz.value_or(1000), 0);
  EXPECT_GT(r.watts_limit.value_or(100), 1) << "not in watts";
  EXPECT_GE(nvml.read(*card).joules, r.joules) << "does not count up";
}

}  // namespace
}  // namespace capstan
