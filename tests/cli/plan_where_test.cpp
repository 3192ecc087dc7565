// capstan plan where: where GPUs should come from.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace capstan::cli_test {
namespace {

using nlohmann::json;

class PlanWhere : public Cli {
 protected:
  static Words words(const Words& more) {
    Words all = {"plan", "where"};
    const auto names_gpu = [](const std::string& word) { return word.starts_with("--gpu="); };
    if (std::none_of(more.begin(), more.end(), names_gpu)) all.emplace_back("--gpu=h100-sxm");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json plan(Words more) const {
    more.emplace_back("--json");
    const Outcome o = run(words(more));
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out, nullptr, false);
  }
  static json choice(const json& out, const std::string& place) {
    for (const json& c : out["choices"])
      if (c["place"] == place) return c;
    ADD_FAILURE() << "no " << place;
    return {};
  }
};

// As many columns as characters: all that the text has are one wide.
size_t columns_of(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST_F(PlanWhere, SaysWhereAndWhyIn80Columns) {
  for (const Words& more : {Words{"--months=24", "--utilisation=0.6"},
                            Words{"--gpus=27", "--months=41", "--spiky", "--growth_per_quarter=3",
                                  "--own_room", "--cluster_price=2.9", "--data_tb=40"},
                            Words{"--gpus=16000", "--months=120", "--sovereign"},
                            Words{"--months=1", "--gpu=rtx4090"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    const Outcome o = run(words(more));
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"recommended: ", "  - ", "1 ", "2026-08-03", "colocation: 150 to 250"});
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(columns_of(line), 80U) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

// The break-even of the formula: 350000 / (31.92 × 730 × 0.6 − 10.2 × 200).
TEST_F(PlanWhere, ShowsTheBreakEvenAndTheCurve) {
  const Outcome o = run(words({"--months=24", "--utilisation=0.6"}));
  expect_holds(o.out, {"8 × h100-sxm for 24 months, working 60% of the time",
                       "recommended: on-demand instances, $336k", "pays back after 29.3 months",
                       "price: ask (--cluster_price)", "│22222", "24 months\n"});
  int drawn = 0;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);)
    drawn += line.find("│") != std::string::npos || line.find("└") != std::string::npos ? 1 : 0;
  EXPECT_EQ(drawn, 15) << "with the months below it the curve has 16 lines";
}

TEST_F(PlanWhere, PrintsTheSameAsJson) {
  const json out = plan({"--months=24", "--utilisation=0.6", "--cluster_price=1.5"});
  EXPECT_EQ(out["recommended"], "cluster");
  EXPECT_EQ(out["choices"].size(), 6U);
  // 17520 hours are 104.3 weeks: 105 × 168 × 8 × 1.5.
  EXPECT_NEAR(choice(out, "cluster")["total"]["expected"].get<double>(), 211680, 1e-6);
  EXPECT_EQ(choice(out, "cluster")["curve"].size(), 25U);
  EXPECT_NEAR(choice(out, "colocation")["break_even_months"].get<double>(), 29.31, 0.005);
  EXPECT_EQ(choice(out, "own-room")["standing"], "ruled out");
  EXPECT_TRUE(choice(out, "private-cloud")["total"].is_null());
  EXPECT_GT(choice(out, "private-cloud")["cheapest_below"].get<double>(), 0.5);
  EXPECT_FALSE(out["sources"].empty());
}

TEST_F(PlanWhere, EveryOptionCounts) {
  const auto total = [&](const Words& more, const char* place) {
    Words all = {"--months=13", "--own_room", "--cluster_price=3"};
    all.insert(all.end(), more.begin(), more.end());
    return choice(plan(all), place)["total"]["expected"].get<double>();
  };
  const double hours = total({}, "on-demand"), racks = total({}, "colocation");
  EXPECT_NEAR(total({"--utilisation=0.25"}, "on-demand"), hours / 4, 1e-6);
  EXPECT_NEAR(total({"--gpus=16"}, "on-demand"), 2 * hours, 1e-6);
  EXPECT_NEAR(total({"--data_tb=10"}, "on-demand"), hours + 13 * 600 + 450, 1e-6);
  EXPECT_NEAR(total({"--egress_tb_per_month=2"}, "on-demand"), hours + 13 * 90, 1e-6);
  EXPECT_GT(total({"--growth_per_quarter=1"}, "on-demand"), hours);
  EXPECT_NEAR(total({"--staff_per_month=1000"}, "colocation"), racks + 13e3, 1e-6);
  EXPECT_NEAR(total({"--server_price=150000"}, "colocation"), racks - 200e3, 1e-6);
  EXPECT_NEAR(total({"--server_kw=5.2"}, "colocation"), racks - 13 * 5 * 200, 1e-6);
  EXPECT_NEAR(total({"--server_price=100000", "--server_gpus=4"}, "colocation"), racks - 150e3,
              1e-6)
      << "each of the two takes half of the power";
  EXPECT_NEAR(total({"--private_price=4"}, "private-cloud"),
              2 * total({"--private_price=2"}, "private-cloud"), 1e-6);
  EXPECT_LT(total({"--gpus=32", "--utilisation=0.5", "--spiky"}, "hybrid"),
            total({"--gpus=32", "--utilisation=0.5"}, "hybrid"));
}

// 16 GPUs at 60%: on demand is the cheapest and does not suit.
TEST_F(PlanWhere, NamesTheCheapestBesideTheRecommended) {
  const json out = plan({"--gpus=16", "--months=12", "--utilisation=0.6"});
  EXPECT_EQ(out["cheapest"], "on-demand");
  EXPECT_NE(out["recommended"], "on-demand");
  expect_holds(unwrapped(run(words({"--gpus=16", "--months=12", "--utilisation=0.6"})).out),
               {"The cheapest is on-demand instances, $336k, ", "less than the next that suits",
                "it is not first, because 16 GPUs or more are seldom free at once"});
}

TEST_F(PlanWhere, TakesWeeksTermsAndWhenTheyAreNeeded) {
  const Outcome now = run(words({"--gpus=64", "--weeks=6", "--need=now", "--cluster_price=2.5"}));
  EXPECT_EQ(now.code, 0) << now.err;
  expect_holds(unwrapped(now.out), {"64 × h100-sxm for 6 weeks", "6 weeks low to high",
                                    "how long it takes to come is not known: ask (--cluster_lead)",
                                    "weeks until a server comes: 4 to 26: general knowledge"});
  const Words quoted = {"--gpus=64", "--weeks=6", "--need=3 weeks", "--cluster_price=2.5",
                        "--cluster_lead=2 weeks"};
  const json out = plan(quoted);
  EXPECT_EQ(out["recommended"], "cluster");
  EXPECT_EQ(choice(out, "cluster")["lead_weeks"]["high"], 2.0);
  EXPECT_TRUE(choice(out, "private-cloud")["lead_weeks"].is_null());
  EXPECT_NEAR(out["needed_in_weeks"].get<double>(), 3, 1e-6);
  expect_holds(unwrapped(run(words(quoted)).out), {"It comes after 2 weeks at most, in time."});
  const json bound = plan(
      {"--gpus=64", "--months=6", "--cluster_price=2.5", "--cluster_term=6mo", "--term=4 weeks"});
  EXPECT_EQ(choice(bound, "cluster")["standing"], "ruled out");
  const Outcome none = run(words({"--sovereign", "--need=now", "--private_lead=9 weeks"}));
  EXPECT_EQ(none.code, 0) << none.err;
  expect_holds(none.out, {"recommended: nothing: every place is ruled out"});
  expect_refused(2, words({"--months=3", "--weeks=3"}), {"--months and --weeks both say how long"});
  expect_refused(2, words({"--weeks=0"}), {"--weeks", "from 1 to 520"});
  expect_refused(2, words({"--need=soon"}), {"found 'soon'", "a time from now"});
  expect_refused(2, words({"--term=soon"}), {"--term: expected a time such as 2 weeks", "'soon'"});
  expect_refused(2, words({"--cluster_term=0 weeks"}), {"--cluster_term: expected a time above 0"});
}

TEST_F(PlanWhere, SovereignDataStayFromPublicClouds) {
  const json out = plan({"--months=2", "--utilisation=0.1", "--sovereign"});
  EXPECT_EQ(out["recommended"], "colocation");
  for (const char* place : {"on-demand", "cluster", "hybrid"})
    EXPECT_EQ(choice(out, place)["standing"], "ruled out") << place;
}

TEST_F(PlanWhere, TakesPricesOfTheUsers) {
  write("mine.yaml", "date: 2031-02-03\norigin: a quote\ninstances: {mine-9000: {8: 10}}\n");
  ::setenv("CAPSTAN_PRICES", at("mine.yaml").c_str(), 1);
  const Outcome o = run({"plan", "where", "--gpu=mine-9000", "--months=3"});
  write("mine.yaml", "instances: {mine-9000: {8: dear}}\n");
  const Outcome wrong = run({"plan", "where", "--gpu=mine-9000"});
  ::unsetenv("CAPSTAN_PRICES");
  EXPECT_EQ(o.code, 0) << o.err;
  // 3 × 730 × 10.
  expect_holds(o.out, {"on-demand instances, $21,900", "a quote (2031-02-03)",
                       "ask for the price of a server (--server_price)"});
  EXPECT_EQ(wrong.code, 4);
  expect_holds(wrong.err, {"mine.yaml:1:28: mine-9000: 8: expected a number", "found 'dear'"});
}

TEST_F(PlanWhere, RefusesWhatItDoesNotUnderstand) {
  expect_refused(2, {"plan", "where"}, {"expected --gpu", "--gpu h100-sxm"});
  expect_refused(2, {"plan", "where", "--gpu=h10-sxm"}, {"'h10-sxm'", "did you mean h100-sxm?"});
  expect_refused(2, words({"--month=3"}), {"--month", "did you mean --months?"});
  expect_refused(2, words({"--months=0"}), {"--months", "from 1 to 120", "'0'"});
  expect_refused(2, words({"--utilisation=60"}), {"--utilisation", "from 0.01 to 1", "'60'"});
  expect_refused(2, words({"--server_gpus=2"}), {"--server_gpus 2", "--server_price"});
  expect_refused(2, words({"--gpu=rtx4090", "--server_price=5000"}), {"rtx4090", "--server_kw"});
  expect_refused(2, words({"h200"}), {"'h200': unexpected argument"});
  const Outcome help = run({"plan", "where", "--help"});
  EXPECT_EQ(help.code, 0);
  expect_holds(help.out, {"capstan plan where", "--utilisation", "--own_room", "CAPSTAN_PRICES"});
}

}  // namespace
}  // namespace capstan::cli_test
