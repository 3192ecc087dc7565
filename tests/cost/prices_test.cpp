#include "cost/prices.h"

#include <gtest/gtest.h>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan {
namespace {

// Prices of no real GPU, with amounts that no rounding produces by chance.
constexpr char kMine[] =
    "date: 2031-02-03\norigin: mine\ninstances:\n"
    "  mine: {1: 1.25, 3: 3.5, 6: 7.75}\n"
    "  h200: {8: 20.5, origin: quoted}\n"
    "servers:\n  h100-sxm: {gpus: 4, low: 100, high: 300, kilowatts: 3.5}\n"
    "rates:\n  colocation: {low: 70, high: 90}\n"
    "between_instances: {gigabits: 400, origin: asked}\n"
    "lead_times: {cluster: {low: 1, high: 3}}\n";

// The public list of 2026-08-03.
TEST(Prices, AreThoseOfTheList) {
  const Prices all = prices();
  const auto an_hour = [&](const char* gpu, int gpus) {
    return cheapest_instances(all, gpu, gpus)->dollars_per_hour;
  };
  EXPECT_DOUBLE_EQ(an_hour("h100-sxm", 1), 4.29);
  EXPECT_DOUBLE_EQ(an_hour("h100-sxm", 8), 31.92);
  EXPECT_DOUBLE_EQ(an_hour("b200", 2), 13.78);
  EXPECT_DOUBLE_EQ(an_hour("a100-40-sxm", 8), 15.92);
  EXPECT_DOUBLE_EQ(an_hour("a100-80-sxm", 5), 22.32) << "there is only the instance of 8";
  EXPECT_EQ(all.server("h100-sxm")->dollars, (Dollars{300e3, 350e3, 400e3}));
  EXPECT_DOUBLE_EQ(all.server("b200")->kilowatts, 14.3);
  EXPECT_EQ(all.colocation.dollars, (Dollars{150, 200, 250}));
  EXPECT_DOUBLE_EQ(all.between.bytes_per_second(), 25e9 / 8);
  EXPECT_FALSE(all.between.origin.empty());
  for (const Offer& offer : all.offers) {
    EXPECT_EQ(offer.date, "2026-08-03") << offer.gpu;
    EXPECT_FALSE(offer.origin.empty()) << offer.gpu;
  }
  for (const Rate* rate : {&all.electricity, &all.cooling, &all.egress, &all.storage, &all.disks}) {
    EXPECT_FALSE(rate->origin.empty());
    EXPECT_GT(rate->dollars.high, rate->dollars.low);
  }
}

TEST(Prices, AFileOfTheUsersAddsAndReplaces) {
  const TempFolder folder;
  const auto file = folder.write("mine.yaml", kMine);
  const Prices before = prices();
  EXPECT_FALSE(before.knows("mine"));
  const Variable variable("CAPSTAN_PRICES", file.c_str());
  const Prices all = prices();
  EXPECT_TRUE(all.knows("mine"));
  EXPECT_EQ(all.offers.size(), before.offers.size() + 4);
  EXPECT_EQ(all.offers.back().origin, "quoted");
  EXPECT_EQ(all.offers.back().date, "2031-02-03");
  EXPECT_EQ(all.servers.size(), before.servers.size());
  EXPECT_EQ(all.server("h100-sxm")->dollars, (Dollars{100, 200, 300}));
  EXPECT_EQ(all.server("h100-sxm")->origin, "mine");
  EXPECT_FALSE(before.cluster_lead);
  EXPECT_EQ(all.cluster_lead, (LeadTime{1, 3, "mine", "2031-02-03"}));
  EXPECT_EQ(all.server_lead, before.server_lead);
  EXPECT_DOUBLE_EQ(all.server("h200")->kilowatts, 10.2) << "no row of the file replaces it";
  EXPECT_EQ(all.colocation.dollars, (Dollars{70, 80, 90}));
  EXPECT_EQ(all.electricity, before.electricity);
  EXPECT_EQ(all.between, (InstanceLink{400, "asked", "2031-02-03"}));
}

TEST(Prices, OneRowReplacesAllInstancesOfAGpu) {
  const Prices all = parse_prices("instances: {h100-sxm: {2: 5}}", "p.yaml", prices());
  EXPECT_FALSE(cheapest_instances(all, "h100-sxm", 8)->parts.front().offer.gpus == 8);
  EXPECT_DOUBLE_EQ(cheapest_instances(all, "h100-sxm", 8)->dollars_per_hour, 20);
}

TEST(Prices, WhatIsWrongIsToldWithItsPlace) {
  const auto refused = [](const char* yaml) {
    return message_of(Fault::file, [&] { parse_prices(yaml, "p.yaml"); });
  };
  EXPECT_EQ(refused(""), "p.yaml: expected the prices, found nothing");
  EXPECT_EQ(refused("3"), "p.yaml:1:1: the prices: expected a mapping");
  EXPECT_EQ(refused("colour: 3"), "p.yaml:1:1: the prices: colour: no such key");
  EXPECT_EQ(refused("instances:\n  a: {8: dear}"),
            "p.yaml:2:10: a: 8: expected a number from 0.001 to 1000000000, found 'dear'");
  EXPECT_EQ(refused("instances:\n  a: {8: -1}"),
            "p.yaml:2:10: a: 8: expected a number from 0.001 to 1000000000, found '-1'");
  EXPECT_EQ(refused("instances:\n  a: {8: .nan}"),
            "p.yaml:2:10: a: 8: expected a number from 0.001 to 1000000000, found '.nan'");
  EXPECT_EQ(refused("instances:\n  a: {eight: 1}"),
            "p.yaml:2:7: a: expected a number of GPUs from 1 to 1024, or origin, found 'eight'");
  EXPECT_EQ(refused("instances:\n  a: {0: 1}"),
            "p.yaml:2:7: a: expected a number of GPUs from 1 to 1024, or origin, found '0'");
  EXPECT_EQ(
      refused("instances:\n  a: {origin: mine}"),
      "p.yaml:2:6: a: expected the dollars per hour of an instance, such as 8: 30.5, found none");
  EXPECT_EQ(refused("between_instances: {gigabits: 0}"),
            "p.yaml:1:31: between_instances: gigabits: expected a number from 0.001 to 1000000000, "
            "found '0'");
  EXPECT_EQ(refused("instances:\n  a: {1: 1}\n  a: {1: 1}"),
            "p.yaml:3:3: instances: expected a name, found 'a' again");
  EXPECT_EQ(refused("servers:\n  a: {kilowatts: 3}"),
            "p.yaml:2:6: a: gpus: expected a number, found none");
  EXPECT_EQ(refused("servers:\n  a: {gpus: 8, low: 3, kilowatts: 3}"),
            "p.yaml:2:6: a: high: expected a number, found none");
  EXPECT_EQ(refused("servers:\n  a: {gpus: [8], kilowatts: 3}"),
            "p.yaml:2:13: a: gpus: expected a number from 1 to 1024, found 'a list'");
  EXPECT_EQ(refused("rates:\n  egress: {low: 5, high: 3}"),
            "p.yaml:2:26: egress: high: expected a number from 5 to 1000000000, found '3'");
  EXPECT_EQ(refused("rates:\n  egress: {low: 1, high: 3, unit: TB}"),
            "p.yaml:2:29: egress: unit: no such key");
  EXPECT_EQ(refused("lead_times:\n  ship: {low: 1}"),
            "p.yaml:2:3: lead_times: ship: expected cluster, private or server");
  EXPECT_EQ(refused("rates:\n  tax: {low: 1, high: 3}"), "p.yaml:2:3: rates: tax: no such key");
  EXPECT_TRUE(refused("rates: {").starts_with("p.yaml:1:")) << refused("rates: {");
}

TEST(Instances, AMachineIsTheCheapestInstanceThatHasItsGpus) {
  const Prices all = prices();
  const auto of = [&](int gpus) { return *cheapest_instances(all, "h100-sxm", gpus); };
  EXPECT_EQ(of(3).text(), "1 × 4 GPUs") << "not 2 + 1, although these cost 12.67 together";
  EXPECT_DOUBLE_EQ(of(3).dollars_per_hour, 16.36);
  EXPECT_EQ(of(16).text(), "2 × 8 GPUs");
  EXPECT_DOUBLE_EQ(of(16).dollars_per_hour, 63.84);
  EXPECT_EQ(of(19).text(), "2 × 8 GPUs + 1 × 4 GPUs");
  EXPECT_EQ(of(19).gpus, 20);
  EXPECT_EQ(of(1).text(), "1 × 1 GPU");
  EXPECT_EQ(cheapest_instances(all, "a10", 3)->text(), "3 × 1 GPU");
  EXPECT_FALSE(cheapest_instances(all, "l4", 1)) << "no list has a price for it";
  // A larger instance may cost less than one that would do.
  const Prices odd = parse_prices("instances: {a: {2: 9, 5: 7}}", "p.yaml");
  EXPECT_EQ(cheapest_instances(odd, "a", 1)->gpus, 5);
  EXPECT_EQ(cheapest_instances(odd, "a", 11)->text(), "3 × 5 GPUs");
}

TEST(RunCost, IsHoursOfAllMachines) {
  const Prices all = prices();
  const auto cost = run_cost(all, "h100-sxm", 8, 3, {10, 12.5, 20});
  ASSERT_TRUE(cost);
  EXPECT_DOUBLE_EQ(cost->dollars.low, 957.6);        // 10 × 3 × 31.92
  EXPECT_DOUBLE_EQ(cost->dollars.expected, 1197.0);  // 12.5 × 3 × 31.92
  EXPECT_DOUBLE_EQ(cost->dollars.high, 1915.2);      // 20 × 3 × 31.92
  EXPECT_FALSE(run_cost(all, "rtx4090", 1, 1, {1, 1, 1}));
}

TEST(RunCost, PaysForSecondsThatHaveBegun) {
  const Prices all = prices();
  const auto seconds = [&](double s) {
    const double h = s / 3600;
    return run_cost(all, "h100-sxm", 8, 1, {h, h, h})->dollars.expected / 31.92 * 3600;
  };
  EXPECT_NEAR(seconds(7), 7, 1e-9);
  EXPECT_NEAR(seconds(7.25), 8, 1e-9);
  EXPECT_NEAR(seconds(100'003), 100'003, 1e-6);
  EXPECT_EQ(seconds(0), 0);
}

TEST(Dollars, AreShort) {
  EXPECT_EQ(format_dollars(0.424), "$0.42");
  EXPECT_EQ(format_dollars(99.999), "$100");
  EXPECT_EQ(format_dollars(13980.96), "$13,981");
  EXPECT_EQ(format_dollars(336'499), "$336k");
  EXPECT_EQ(format_dollars(999'700), "$1.00M");
  EXPECT_EQ(format_dollars(123.4e6), "$123M");
  EXPECT_EQ(format_dollars(-1234), "-$1,234");
  EXPECT_EQ(format_dollars(Dollars{900e3, 1e6, 1.25e6}), "$1.00M ($900k to $1.25M)");
  EXPECT_EQ(format_dollars(Dollars{2e6, 2e6, 2e6}), "$2.00M");
}

}  // namespace
}  // namespace capstan
