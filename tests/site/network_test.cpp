#include "site/network.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace capstan {
namespace {

TEST(FatTree, HasThePublishedSizes) {
  // k²/2 endpoints of switches with k ports.
  EXPECT_EQ(fat_tree(1, 36).most_endpoints, 648);
  EXPECT_EQ(fat_tree(1, 40).most_endpoints, 800);
  EXPECT_EQ(fat_tree(1, 64).most_endpoints, 2048);
  const FatTree t = fat_tree(256, 64);
  EXPECT_EQ(t.leaves, 8);
  EXPECT_EQ(t.spines, 4);
  EXPECT_EQ(t.cables_up(), 256);
  EXPECT_EQ(kDirector.spines(), 6);  // of a CS7520: 216 ports, 36 for each spine
}

TEST(FatTree, FollowsItsFormulasForAnyNumber) {
  for (const int64_t k : {4, 36, 40, 64})
    for (int64_t n = k + 1; n <= k * k / 2; n += 7) {
      const FatTree t = fat_tree(n, k);
      ASSERT_EQ(t.leaves, (n + k / 2 - 1) / (k / 2)) << n << " of " << k;
      ASSERT_EQ(t.spines, (n + k - 1) / k) << n << " of " << k;
      ASSERT_LE(t.cables_up(), t.spines * k) << n << " of " << k;
    }
}

TEST(FatTree, OneSwitchNeedsNoSpine) {
  EXPECT_EQ(fat_tree(64, 64).leaves, 1);
  EXPECT_EQ(fat_tree(64, 64).spines, 0);
  EXPECT_EQ(fat_tree(65, 64).leaves, 3);
  EXPECT_EQ(fat_tree(65, 64).spines, 2);
}

TEST(FatTree, OversubscriptionSavesSpines) {
  // 26 of 40 ports to endpoints: 14 to spines is the least that is not more than 2:1.
  const FatTree t = fat_tree(256, 40, 2);
  EXPECT_EQ(t.down, 26);
  EXPECT_EQ(t.up, 14);
  EXPECT_EQ(t.leaves, 10);
  EXPECT_EQ(t.spines, 4);  // of 140 ports
  EXPECT_EQ(fat_tree(256, 40).spines, 7);
  EXPECT_EQ(fat_tree(256, 64, 3).down, 48);
}

TEST(FatTree, SaysWhenTwoLevelsDoNotSuffice) {
  EXPECT_TRUE(fat_tree(2048, 64).fits());
  EXPECT_FALSE(fat_tree(2049, 64).fits());
  EXPECT_EQ(ports_for(2049), 66);  // 66²/2 = 2178
  EXPECT_EQ(ports_for(2048), 64);
  EXPECT_EQ(most_of_three_levels(64), 65536);
}

TEST(FatTree, NeedsAnEvenNumberOfPorts) {
  EXPECT_TRUE(message_of(Fault::usage, [] {
                fat_tree(100, 35);
              }).starts_with("switch_ports: expected an even number of ports, found 35"));
}

TEST(Link, TheSlowestStepThatIsNotFilledAbove80Percent) {
  // 1, 10, 100, 200 and 400 Gb/s carry 0.1, 1, 10, 20 and 40 GB/s.
  const std::pair<double, double> steps[] = {{0.1e9, 1},   {0.11e9, 10}, {1e9, 10},
                                             {1.1e9, 100}, {10e9, 100},  {11e9, 200},
                                             {20e9, 200},  {21e9, 400},  {40e9, 400}};
  for (const auto& [need, gigabits] : steps) {
    EXPECT_EQ(link_for(need).speed.gigabits, gigabits) << need;
    EXPECT_EQ(link_for(need).ports, 1) << need;
    EXPECT_EQ(link_with_ports(7 * need, 7).speed.gigabits, gigabits) << need;
  }
  EXPECT_EQ(link_for(0.01e9, 10).speed.gigabits, 10);
}

TEST(Link, MorePortsWhereTheFastestDoesNotSuffice) {
  const Link l = link_for(90e9);
  EXPECT_EQ(l.ports, 3);  // 112.5 GB/s to buy, 37.5 a port
  EXPECT_EQ(l.speed.gigabits, 400);
  EXPECT_EQ(
      message_of(Fault::usage, [] { link_with_ports(90e9, 2); }),
      "node_gb_per_s: 90 GB/s of each server need 3 ports of 400 Gb/s NDR, filled to 80%, but "
      "it has 2; give --fabric_ports 3");
}

}  // namespace
}  // namespace capstan
