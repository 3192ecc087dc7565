#include "bench/turns.h"

#include <gtest/gtest.h>

#include <map>

namespace capstan {
namespace {

constexpr double kLong = 3600;

// Measurements of programs that disturb: the n-th of a name meets the n-th load.
struct Disturbed {
  std::map<std::string, std::vector<double>> loads;
  std::map<std::string, int> taken, kept;  // how often, and which one was kept at last
  std::vector<Measurement> all;

  explicit Disturbed(const std::map<std::string, std::vector<double>>& of) : loads(of) {
    for (const auto& [name, each] : loads)
      all.push_back({.name = name, .take = [this, name = name] {
                       const int number = taken[name]++;
                       now = loads.at(name).at(static_cast<size_t>(number));
                       return [this, name, number] { kept[name] = number; };
                     }});
  }
  Turns::Watch watch() {
    return [this](const std::function<void()>& measure) {
      measure();
      return now;
    };
  }
  double now = 0;
};

TEST(Turns, RepeatWhatOtherProgramsDisturbedAndKeepTheQuietest) {
  Disturbed d({{"a", {0.0}}, {"b", {1.5, 0.1}}, {"c", {1.0, 2.0, 0.5}}, {"d", {0.9, 1.0, 1.1}}});
  int64_t begun = 0, promised = 0;
  std::vector<std::string> names;
  Turns turns(
      [&](std::string_view what, int64_t number, int64_t of) {
        EXPECT_EQ(number, begun++);
        promised = of;
        names.emplace_back(what);
      },
      d.watch(), 3, kLong);
  turns.expect(4);
  turns.run(d.all);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d", "b, again", "c, again", "d, again",
                                             "c, again", "d, again"}));
  EXPECT_EQ(begun, promised);
  EXPECT_EQ(d.kept["a"], 0);
  EXPECT_EQ(d.kept["b"], 1);
  EXPECT_EQ(d.kept["c"], 2);
  EXPECT_EQ(d.kept["d"], 0) << "what is disturbed more does not replace it";
  EXPECT_EQ(d.all[2].others, 0.5);
  EXPECT_EQ(d.all[3].others, 0.9);
}

TEST(Turns, EndWithTheTime) {
  Disturbed d({{"a", {1.0, 0.0}}, {"b", {1.0, 0.0}}});
  Turns turns({}, d.watch(), 3, 0);
  turns.run(d.all);
  EXPECT_LT(turns.seconds_left(), 0);
  EXPECT_EQ(d.taken["a"] + d.taken["b"], 2) << "each is measured once";
  EXPECT_EQ(d.kept.size(), 2U);
}

}  // namespace
}  // namespace capstan
