#include "site/site_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/message_of.h"

namespace capstan {
namespace {

const SiteGpu kH100 = {"h100-sxm", 700, int64_t{80} << 30, 400};
const SiteGpu kL40s = {"l40s", 350, int64_t{48} << 30};

SiteQuestion question(const SiteGpu& gpu = kH100) {
  SiteQuestion q;
  q.gpu = gpu;
  q.rack.circuit = parse_circuit("415x60");
  return q;
}

TEST(GpuServer, HasTheMakersMaximum) {
  const std::pair<const char*, double> servers[] = {{"a100-40-sxm", 6500},
                                                    {"a100-80-sxm", 6500},
                                                    {"h100-sxm", 10200},
                                                    {"h200", 10200},
                                                    {"b200", 14300}};
  for (const auto& [gpu, watts] : servers) {
    EXPECT_DOUBLE_EQ(server_with({gpu, 1, 1}, 8).watts, watts) << gpu;
    EXPECT_DOUBLE_EQ(server_with({gpu, 1, 1}, 4).watts, watts / 2) << gpu;
    EXPECT_TRUE(server_with({gpu, 1, 1}, 4).origin.starts_with("estimated")) << gpu;
    EXPECT_TRUE(server_with({gpu, 1, 1}, 8).units_known) << gpu;
    EXPECT_FALSE(server_with({gpu, 1, 1}, 4).units_known) << gpu << ": such a one may be lower";
  }
  EXPECT_DOUBLE_EQ(server_with(kL40s, 3).watts, 2 * 3 * 350);
  EXPECT_TRUE(server_with(kL40s, 8).origin.starts_with("estimated"));
  EXPECT_FALSE(server_with(kL40s, 8).units_known);
}

TEST(GpuServer, HostHasTheMemoryOfItsGpusAndCoresForWorkers) {
  const HostNeeds host = host_needs(kL40s, 3, 7);
  EXPECT_EQ(host.ram_bytes, 3 * (int64_t{48} << 30));
  EXPECT_EQ(host.cores, 3 * (7 + 1) + 4);
}

TEST(Storage, EachTierHasItsLimits) {
  // Bought at need / 0.8: 24.576 TB fill eight drives of 3.84 TB, 10 GB/s a port of 100 Gb/s.
  EXPECT_EQ(storage_for(24.576e12, 1e9, 1).tier, StorageTier::local);
  EXPECT_EQ(storage_for(24.6e12, 1e9, 1).tier, StorageTier::nfs);
  EXPECT_EQ(storage_for(1e12, 10e9, 2).tier, StorageTier::nfs);
  EXPECT_EQ(storage_for(1e12, 10.1e9, 2).tier, StorageTier::parallel);
  EXPECT_EQ(storage_for(401e12, 1e9, 2).tier, StorageTier::parallel);
  EXPECT_DOUBLE_EQ(storage_for(2e12, 1e9, 1).bought_bytes, 2.5e12);
  EXPECT_EQ(storage_for(2e12, 1e9, 1).link.ports, 0);
  // 30 GB/s of 3 servers: 12.5 GB/s each.
  EXPECT_EQ(storage_for(2e12, 30e9, 3).link.speed.gigabits, 100);
  EXPECT_EQ(storage_for(2e12, 1e9, 3).link.speed.gigabits, 10);
}

TEST(Sharing, EachPersonHasGpusOfTheirOwn) {
  const auto shares = parse_shares("ana:2,b.en-2:4,cy:1", 8);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].visible_devices(), "0,1");
  EXPECT_EQ(shares[1].person, "b.en-2");
  EXPECT_EQ(shares[1].visible_devices(), "2,3,4,5");
  EXPECT_EQ(shares[2].visible_devices(), "6");
}

TEST(Sharing, RefusesMoreThanThereAreAndWhatIsNoList) {
  const auto refused = [](const char* people) {
    return message_of(Fault::usage, [&] { parse_shares(people, 8); });
  };
  EXPECT_EQ(refused("ana:5,ben:4"),
            "people: 2 people want 9 GPUs in all, but a server has 8; lower a share, or let them "
            "take turns with a scheduler (Slurm)");
  EXPECT_EQ(refused("ana:1,ana:2"),
            "people: ana is named twice; give each person one number of GPUs");
  for (const char* people : {"", "ana", "ana:", ":2", "ana:0", "ana:-1", "ana:2x", "ana:2,",
                             "a b:1", "a\n:1", "ana:99999999999999999999"})
    EXPECT_TRUE(refused(people).starts_with("people: expected NAME:GPUS")) << people;
}

TEST(SitePlan, PowerHeatAndEnergy) {
  // 1 W is 3.412142 BTU/h and 12,000 BTU/h are a ton; a year has 8,760 hours.
  const PowerNeeds n = power_needs(163200, 1.25);
  EXPECT_NEAR(n.heat_btu_per_hour, 556861.6, 0.1);
  EXPECT_NEAR(n.cooling_tons, n.heat_btu_per_hour / 12000, 1e-4);
  EXPECT_DOUBLE_EQ(n.facility_watts, 204000);
  EXPECT_DOUBLE_EQ(n.kwh_per_year, 204 * 8760);
}

TEST(SitePlan, ServersFromGpus) {
  SiteQuestion q = question();
  q.gpus = 100;
  EXPECT_EQ(plan_site(q).servers, 13);
  EXPECT_EQ(plan_site(q).gpus(), 104);
  q.servers = 13;
  EXPECT_TRUE(message_of(Fault::usage, [&] { plan_site(q); }).starts_with("gpus: --gpus 100"));
}

TEST(SitePlan, WhatIsGivenReplacesWhatIsKnown) {
  SiteQuestion q = question();
  q.servers = 3;
  q.server_watts = 9000;
  q.server_units = 5;
  q.other_watts = 1500;
  q.rack.units = 11;
  const SitePlan p = plan_site(q);
  EXPECT_DOUBLE_EQ(p.power.load_watts, 3 * 9000 + 1500);
  EXPECT_EQ(p.racks.servers_per_rack, 2);
  EXPECT_EQ(p.server.origin, "as given");
}

TEST(SitePlan, ThePortsOfTheFabric) {
  SiteQuestion q = question();
  q.servers = 32;
  EXPECT_EQ(plan_site(q).fabric.endpoints, 256);  // a port for each GPU, 400 Gb/s for each H100
  EXPECT_EQ(plan_site(q).fabric_link.speed.gigabits, 400);
  EXPECT_EQ(plan_site(q).fabric.leaves, 8);
  EXPECT_EQ(plan_site(q).fabric.spines, 4);
  q.fabric_ports = 3;
  q.node_bytes_per_second = 45e9;
  EXPECT_EQ(plan_site(q).fabric.endpoints, 96);
  EXPECT_EQ(plan_site(q).fabric_link.speed.gigabits, 200);  // 18.75 GB/s a port to buy
  q.gpu = kL40s;
  q.node_bytes_per_second = 0;
  EXPECT_EQ(plan_site(q).fabric_link.speed.gigabits, 100);
}

TEST(SitePlan, OneServerHasNoFabric) {
  SiteQuestion q = question();
  EXPECT_EQ(plan_site(q).fabric.endpoints, 0);
  EXPECT_TRUE(nlohmann::json::parse(site_json(plan_site(q)))["fabric"].is_null());
  q.oversubscription = 2;
  EXPECT_TRUE(message_of(Fault::usage, [&] {
                plan_site(q);
              }).starts_with("servers: one server has no network to others"));
}

}  // namespace
}  // namespace capstan
