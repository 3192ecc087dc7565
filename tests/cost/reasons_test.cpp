#include "cost/reasons.h"

#include <gtest/gtest.h>

#include "cost/where.h"

namespace capstan {
namespace {

Need h100(int gpus, int months) {
  Need need;
  need.gpu = "h100-sxm";
  need.gpus = gpus;
  need.months = months;
  return need;
}

// All reasons of the recommendation in one text.
std::string reasons(const Need& need) {
  std::string all;
  for (const std::string& reason : recommend(need, prices()).reasons) all += reason + "\n";
  return all;
}

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(Reasons, CompareWithTheNextAndWithOwning) {
  // 17 months: 350000 + 17 × 2040 against 17 × 730 × 31.92 is 384,680 against 396,127.
  const std::string own = reasons(h100(8, 17));
  EXPECT_TRUE(says(own, "In 17 months it costs $11,447 less than the next that suits, on-demand"))
      << own;
  EXPECT_TRUE(says(own, "pays back after 16.5 months")) << own;
  Need idle = h100(8, 60);
  idle.utilisation = 0.05;  // 1165 dollars of hours a month, less than the 2040 of a rack
  EXPECT_TRUE(says(reasons(idle), "Owning never pays back")) << reasons(idle);
}

// 16 GPUs by the hour do not suit, and cost least: both are said.
TEST(Reasons, NameTheCheapestAndWhyItIsNotFirst) {
  Need need = h100(16, 12);
  need.utilisation = 0.5;
  const Where where = recommend(need, prices());
  ASSERT_NE(where.cheapest(), nullptr);
  EXPECT_EQ(where.cheapest()->place, Place::on_demand);
  EXPECT_NE(where.choices.front().place, Place::on_demand);
  const std::string text = reasons(need);
  EXPECT_TRUE(says(text, "The cheapest is on-demand instances, $280k, ")) << text;
  EXPECT_TRUE(says(text, "it is not first, because 16 GPUs or more are seldom free at once"))
      << text;
  need.gpus = 8;
  EXPECT_FALSE(says(reasons(need), "The cheapest is")) << "it is first";
}

TEST(Reasons, NameWhatTheNeedAsksFor) {
  Need need = h100(8, 6);
  EXPECT_FALSE(says(reasons(need), "burst"));
  need.spiky = true;
  EXPECT_TRUE(says(reasons(need), "More instances serve a burst"));
  need.sovereign = true;
  EXPECT_TRUE(says(reasons(need), "Sovereign data rule out public clouds"));
  EXPECT_TRUE(says(reasons(need), "plan for the highest load"));
}

TEST(Reasons, TellWhichPriceIsMissing) {
  const std::string text = reasons(h100(64, 3));
  EXPECT_TRUE(says(text, "Its price is not known here: ask. Below $3.72 per GPU-hour")) << text;
  // 14 weeks of 8 × 31.92 an hour.
  EXPECT_TRUE(says(text, "by the hour it would cost $601k")) << text;
}

TEST(Growth, LeadsFromAWorkstationToACluster) {
  Need need = h100(3, 24);
  EXPECT_TRUE(growth_of(need).starts_with("3 GPUs are a workstation.")) << growth_of(need);
  need.growth_per_quarter = 1;  // 5 GPUs after six months, 9 after eighteen
  EXPECT_TRUE(growth_of(need).starts_with(
      "3 GPUs are a workstation, from month 7 on a shared server, from month 19 on a cluster (10 "
      "GPUs at the end)."))
      << growth_of(need);
  EXPECT_EQ(growth_of(h100(640, 3)), "640 GPUs are a cluster.");
}

}  // namespace
}  // namespace capstan
