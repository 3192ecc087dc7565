#include "cost/where.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cost/curve_text.h"
#include "cost/payments.h"
#include "support/message_of.h"

namespace capstan {
namespace {

Need h100(int gpus, int months, double utilisation) {
  Need need;
  need.gpu = "h100-sxm";
  need.gpus = gpus;
  need.months = months;
  need.utilisation = utilisation;
  return need;
}

Place first(const Need& need) {
  return recommend(need, prices()).choices.front().place;
}

// $350k, 8 × h100-sxm at 31.92 an hour, 10.2 kW at $200: 350000 / (23301.60 − 2040) and
// 350000 / (13980.96 − 2040).
TEST(BreakEven, IsThatOfTheFormula) {
  EXPECT_NEAR(break_even_months(350e3, 31.92, 1, 2040), 16.46, 0.005);
  EXPECT_NEAR(break_even_months(350e3, 31.92, 0.6, 2040), 29.31, 0.005);
  EXPECT_TRUE(std::isinf(break_even_months(1, 31.92, 0.01, 2040)));
  const auto of = [](double u) {
    return *recommend(h100(8, 24, u), prices()).at(Place::colocation).break_even;
  };
  EXPECT_NEAR(of(1), 16.46, 0.005);
  EXPECT_NEAR(of(0.6), 29.31, 0.005);
}

TEST(Where, RentsForAShortTimeAndOwnsForALongOne) {
  EXPECT_EQ(first(h100(8, 16, 1)), Place::on_demand);  // it breaks even after 16.5 months
  EXPECT_EQ(first(h100(8, 17, 1)), Place::colocation);
  EXPECT_EQ(first(h100(8, 29, 0.6)), Place::on_demand);
  EXPECT_EQ(first(h100(8, 30, 0.6)), Place::colocation);
  EXPECT_EQ(first(h100(64, 2, 0.9)), Place::cluster) << "no one has 64 GPUs by the hour";
  EXPECT_EQ(first(h100(640, 12, 1)), Place::private_cloud);
  Need at_home = h100(8, 30, 0.6);
  at_home.own_room = true;
  EXPECT_EQ(first(at_home), Place::own_room);
}

TEST(Where, AddsWhatIsPaid) {
  Need need = h100(8, 7, 0.5);
  need.data_tb = 3, need.egress_tb_per_month = 2, need.cluster_price = 2.9;
  const Where where = recommend(need, prices());
  // A month: 365 h × 31.92, 3 TB × $60, 2 TB × $45; at the end 3 TB × $45.
  const Choice& hours = where.at(Place::on_demand);
  EXPECT_NEAR(hours.monthly.expected, 11650.8 + 180 + 90, 1e-9);
  EXPECT_NEAR(hours.total->expected, 7 * (11650.8 + 180 + 90) + 135, 1e-6);
  EXPECT_NEAR(hours.total->low, 7 * (11650.8 + 60), 1e-6) << "no egress, $20 for a TB";
  // 5110 hours are 30.4 weeks: 31 × 168 × 8 × 2.9, and the same data.
  EXPECT_NEAR(where.at(Place::cluster).total->expected, 120825.6 + 7 * 270 + 135, 1e-6);
  // A server and 3 TB × $165 of disks; 10.2 kW × $200.
  const Choice& own = where.at(Place::colocation);
  EXPECT_NEAR(own.at_once.expected, 350495, 1e-9);
  EXPECT_NEAR(own.total->expected, 350495 + 7 * 2040, 1e-9);
  EXPECT_EQ(own.curve.size(), 8U);
  EXPECT_NEAR(own.curve[3], 350495 + 3 * 2040, 1e-9);
  need.private_price = 2;
  // A whole year is paid: 12 × 730 × 8 × 2.
  EXPECT_NEAR(recommend(need, prices()).at(Place::private_cloud).total->expected,
              140160 + 7 * 270 + 135, 1e-6);
}

TEST(Where, GrowthRentsMoreAndBuysServers) {
  Need need = h100(7, 7, 1);
  need.growth_per_quarter = 2;  // 7, 9 from month 4, 11 in month 7
  const Where where = recommend(need, prices());
  // 7 GPUs are an instance of 8; 9 are 8 + 1; 11 are 8 + 4.
  EXPECT_NEAR(where.at(Place::on_demand).total->expected,
              730 * (3 * 31.92 + 3 * (31.92 + 4.29) + 31.92 + 16.36), 1e-6);
  EXPECT_NEAR(where.at(Place::colocation).total->expected, 2 * 350e3 + (3 + 4 * 2) * 2040, 1e-6);
  // Its second server would rent: one is owned, and what is beyond comes by the hour.
  EXPECT_EQ(where.at(Place::hybrid).owned_gpus, 8);
  EXPECT_NEAR(where.at(Place::hybrid).total->expected, 350e3 + 7 * 2040 + 730 * (3 * 4.29 + 16.36),
              1e-6);
  EXPECT_NE(where.growth.find("from month 4 on a cluster (11 GPUs at the end)"), std::string::npos)
      << where.growth;
}

// Of a load that is q^(1/u − 1) of the peak, what is above half of it, by sums over q.
TEST(Where, AHybridRentsWhatIsAboveItsOwn) {
  for (const double u : {0.1, 0.37, 0.5, 0.9}) {
    double above = 0;
    constexpr int kSteps = 100'000;
    for (int i = 0; i < kSteps; ++i)
      above += std::max(0.0, std::pow((i + 0.5) / kSteps, 1 / u - 1) - 0.5) / kSteps;
    EXPECT_NEAR(busy_above(0.5, u, true), above / 0.5, 1e-4) << u;
    EXPECT_DOUBLE_EQ(busy_above(0.5, u, false), u) << "a steady load needs all GPUs or none";
    EXPECT_NEAR(busy_above(0, u, true), u, 1e-12);
  }
  EXPECT_DOUBLE_EQ(busy_above(0.5, 1, true), 1);
  // Base load on own machines, bursts by the hour: less than either alone.
  Need need = h100(32, 36, 0.5);
  need.spiky = true;
  const Where where = recommend(need, prices());
  EXPECT_EQ(where.choices.front().place, Place::hybrid);
  EXPECT_GT(where.choices.front().owned_gpus, 0);
  EXPECT_LT(where.choices.front().owned_gpus, 32);
}

TEST(Where, AnUnknownPriceIsAskedFor) {
  const Where where = recommend(h100(64, 3, 1), prices());
  const Choice& cluster = where.at(Place::cluster);
  EXPECT_EQ(cluster.ask, "GPU-hour");
  EXPECT_FALSE(cluster.total);
  // On demand 3 × 730 × 8 × 31.92 is cheapest of what is known; 14 weeks are 2352 hours.
  EXPECT_NEAR(*cluster.below, 559238.4 / (2352 * 64), 1e-9);
  Need need = h100(64, 3, 1);
  need.cluster_price = *cluster.below * 0.999;
  const Where told = recommend(need, prices());
  EXPECT_LT(told.at(Place::cluster).total->expected, told.at(Place::on_demand).total->expected);

  // No one states what a server with this GPU costs, and below which price it pays is known.
  Need b200 = h100(8, 30, 1);
  b200.gpu = "b200";
  const Choice own = recommend(b200, prices()).at(Place::colocation);
  EXPECT_EQ(own.ask, "server");
  EXPECT_NEAR(*own.below, 30 * (730 * 53.52 - 14.3 * 200), 1e-6);
  b200.gpu = "l4";  // nothing is known: places in the order of the rules, and no dollars
  for (const Choice& c : recommend(b200, prices()).choices) {
    EXPECT_FALSE(c.total);
    EXPECT_FALSE(c.below);
    EXPECT_FALSE(c.ask.empty());
  }
}

// 6 weeks are 1008 hours, 1.38 months: of the second month only a part is paid.
TEST(Where, TakesWeeks) {
  Need need = h100(8, 0, 0.5);
  need.set_weeks(6);
  EXPECT_EQ(need.months, 2);
  need.cluster_price = 2;
  need.private_price = 2;
  const Where where = recommend(need, prices());
  EXPECT_NEAR(where.at(Place::on_demand).total->expected, 1008 * 0.5 * 31.92, 1e-6);
  EXPECT_NEAR(where.at(Place::cluster).total->expected, 1008 * 8 * 2, 1e-6) << "whole weeks";
  EXPECT_NEAR(where.at(Place::private_cloud).total->expected, 8760 * 8 * 2, 1e-6);
  EXPECT_NEAR(where.at(Place::colocation).total->expected, 350e3 + 1008.0 / 730 * 2040, 1e-6);
  EXPECT_EQ(where.at(Place::on_demand).curve.size(), 3U);
  for (int weeks = 1; weeks <= 520; ++weeks) {
    need.set_weeks(weeks);
    EXPECT_NEAR(recommend(need, prices()).at(Place::cluster).total->expected, weeks * 168.0 * 8 * 2,
                1e-6);
  }
}

TEST(Where, TermsAreThoseOfTheQuotes) {
  Need need = h100(64, 7, 1);
  need.cluster_price = 2.5, need.private_price = 2;
  need.cluster_term = 3 * 730, need.private_term = 3 * 8760;
  const Where quoted = recommend(need, prices());
  EXPECT_NEAR(quoted.at(Place::cluster).total->expected, 9 * 730 * 64 * 2.5, 1e-6);
  EXPECT_NEAR(quoted.at(Place::private_cloud).total->expected, 3 * 8760 * 64 * 2.0, 1e-6);
  need.longest_term = 8760;
  const Where bound = recommend(need, prices());
  EXPECT_EQ(bound.at(Place::private_cloud).standing, Standing::ruled_out);
  EXPECT_EQ(bound.at(Place::private_cloud).why,
            "it commits you to 3 years, and you commit to at most 1 year (--term)");
  EXPECT_EQ(bound.at(Place::cluster).standing, Standing::suits);
  EXPECT_EQ(bound.at(Place::colocation).standing, Standing::suits) << "servers can be sold";
}

// Servers come after 4 to 26 weeks; of clusters and private clouds nobody says when.
TEST(Where, WhatComesTooLateIsRuledOut) {
  Need need = h100(8, 36, 1);
  EXPECT_EQ(first(need), Place::colocation);
  need.needed_in = 0;
  const Where now = recommend(need, prices());
  EXPECT_EQ(now.choices.front().place, Place::on_demand);
  EXPECT_EQ(now.at(Place::colocation).standing, Standing::ruled_out);
  EXPECT_EQ(now.at(Place::colocation).why, "you need GPUs now, and it comes after 4 to 26 weeks");
  EXPECT_EQ(now.at(Place::cluster).standing, Standing::unsuited);
  EXPECT_EQ(now.at(Place::cluster).why,
            "you need GPUs now, and how long it takes to come is not known: ask (--cluster_lead)");
  EXPECT_FALSE(now.at(Place::cluster).lead);
  need.needed_in = 10;
  EXPECT_EQ(recommend(need, prices()).at(Place::colocation).why,
            "you need GPUs in 10 weeks, and it may come after 4 to 26 weeks");
  EXPECT_EQ(recommend(need, prices()).at(Place::colocation).standing, Standing::unsuited);
  need.needed_in = 26;
  EXPECT_EQ(first(need), Place::colocation);
  need.needed_in = 2;
  need.server_lead = 1.5;
  EXPECT_EQ(first(need), Place::colocation) << "a quote counts";
  need.gpus = 64, need.months = 3;
  need.cluster_price = 2.5, need.cluster_lead = 1;
  EXPECT_EQ(first(need), Place::cluster);
  // Nothing is left.
  need.sovereign = true;
  need.server_lead = 8, need.private_lead = 8;
  const Where none = recommend(need, prices());
  for (const Choice& c : none.choices) EXPECT_EQ(c.standing, Standing::ruled_out);
  EXPECT_EQ(none.cheapest(), nullptr);
  EXPECT_EQ(none.reasons.size(), 1U);
}

TEST(Where, ChecksTheNeed) {
  Need need = h100(8, 12, 0);
  EXPECT_EQ(message_of(Fault::usage, [&] { recommend(need, prices()); }),
            "utilisation: expected a number from 0.01 to 1, found 0");
  need.utilisation = std::nan("");
  EXPECT_NE(message_of(Fault::usage, [&] { recommend(need, prices()); }).find("found nan"),
            std::string::npos);
}

Need random_need(std::mt19937& random) {
  const auto upto = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  static const char* const kGpus[] = {"h100-sxm", "h100-sxm", "b200", "a10", "l4", "a100-80-sxm"};
  Need need = h100(1 + upto(upto(1) ? 11 : 700), 1 + upto(47), 0.01 * (1 + upto(99)));
  need.gpu = kGpus[upto(5)];
  need.data_tb = upto(1) ? upto(300) : 0;
  need.egress_tb_per_month = upto(1) ? upto(40) : 0;
  need.growth_per_quarter = upto(1) ? upto(9) : 0;
  need.sovereign = upto(3) == 0, need.spiky = upto(1), need.own_room = upto(1);
  if (upto(1)) need.cluster_price = 0.5 + 0.1 * upto(50);
  if (upto(1)) need.private_price = 0.5 + 0.1 * upto(40);
  need.staff_per_month = upto(1) ? 100 * upto(90) : 0;
  if (upto(3) == 0) need.set_weeks(1 + upto(200));
  return need;
}

double rank(const Choice& c) {
  return c.total ? c.total->expected : c.ceiling.value_or(INFINITY);
}

void expect_sane(const Where& where, const Need& need) {
  ASSERT_EQ(where.choices.size(), 6U);
  EXPECT_FALSE(where.reasons.empty());
  EXPECT_NE(where.choices.front().standing, Standing::ruled_out);
  EXPECT_TRUE(std::is_sorted(
      where.choices.begin(), where.choices.end(), [](const Choice& a, const Choice& b) {
        return a.standing != b.standing ? a.standing < b.standing : rank(a) < rank(b);
      }));
  for (const Choice& c : where.choices) {
    if (need.sovereign &&
        (c.place == Place::on_demand || c.place == Place::cluster || c.place == Place::hybrid)) {
      EXPECT_EQ(c.standing, Standing::ruled_out);
    }
    EXPECT_EQ(c.total.has_value(), c.ask.empty());
    EXPECT_EQ(c.why.empty(), c.standing == Standing::suits);
    if (!c.total) continue;
    EXPECT_TRUE(std::isfinite(c.total->high));
    EXPECT_GE(c.total->low, 0);
    EXPECT_LE(c.total->low, c.total->expected);
    EXPECT_LE(c.total->expected, c.total->high);
    EXPECT_TRUE(std::is_sorted(c.curve.begin(), c.curve.end()));
    EXPECT_DOUBLE_EQ(c.curve.back(), c.total->expected);
    EXPECT_EQ(c.curve.size(), static_cast<size_t>(need.months) + 1);
  }
}

// For every need: a list that is in order, more months that never cost less, and more utilisation
// that never makes owning worse beside renting by the hour.
TEST(Where, IsSaneAndMonotoneForRandomNeeds) {
  const Prices all = prices();
  std::mt19937 random(20260803);
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const Need need = random_need(random);
    SCOPED_TRACE(testing::Message() << i << ": " << need.gpus << " " << need.gpu << ", "
                                    << need.months << " months at " << need.utilisation);
    const Where now = recommend(need, all);
    expect_sane(now, need);
    Need longer = need, busier = need;
    longer.weeks ? longer.set_weeks(*need.weeks + 1 + i % 60) : void(longer.months += 1 + i % 14);
    busier.utilisation = (1 + need.utilisation) / 2;
    const Where then = recommend(longer, all), busy = recommend(busier, all);
    for (const Choice& c : now.choices) {
      const Choice& later = then.at(c.place);
      if (c.total) {
        EXPECT_GE(later.total->expected, c.total->expected * (1 - 1e-12)) << name_of(c.place);
      }
    }
    if (now.choices.front().total && then.choices.front().total) {
      EXPECT_GE(then.choices.front().total->expected,
                now.choices.front().total->expected * (1 - 1e-12));
    }
    for (const Place own : {Place::colocation, Place::own_room}) {
      const Choice &a = now.at(own), &b = busy.at(own);
      if (!a.total || !now.at(Place::on_demand).total) continue;
      EXPECT_LE(b.total->expected - busy.at(Place::on_demand).total->expected,
                a.total->expected - now.at(Place::on_demand).total->expected);
      EXPECT_LE(*b.break_even, *a.break_even);
    }
  }
}

TEST(CurveText, DrawsDollarsUpwardsAndMonthsToTheRight) {
  // 19 columns of $1000 / 18 each, five rows of $250: three columns are nearest to the lowest row.
  const std::string text = curve_text({{'1', {0, 500, 1000}}, {'2', {1000, 1000, 1000}}}, 31, 7);
  EXPECT_EQ(text,
            "   $1,000 │2222222222222222111\n"  // both are here at the end: the first is drawn
            "          │            1111\n"
            "     $500 │       11111\n"
            "          │   1111\n"
            "    $0.00 │111\n"
            "          └───────────────────\n"
            "           0          2 months\n");
  // A curve that ends before the others.
  EXPECT_NE(curve_text({{'1', {0, 4}}, {'2', {3, 3, 3, 3}}}, 40, 8), "");
  EXPECT_EQ(curve_text({}, 80, 16), "");
  EXPECT_EQ(curve_text({{'1', {0, 0}}}, 80, 16), "") << "nothing was paid";
}

}  // namespace
}  // namespace capstan
