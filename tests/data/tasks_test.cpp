#include "data/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace capstan {
namespace {

// An answer worked out anew from the prompt's text.
std::string solve(const std::string& prompt) {
  const size_t colon = prompt.find(": ");
  const std::string kind = prompt.substr(0, colon);
  std::string text = prompt.substr(colon + 2);
  text.pop_back();
  if (kind == "Reverse") return {text.rbegin(), text.rend()};
  if (kind == "Last") return text.substr(text.size() - 1);
  if (kind == "Count a") return std::to_string(std::count(text.begin(), text.end(), 'a'));
  if (kind == "Add")
    return std::to_string(std::stoi(text) + std::stoi(text.substr(text.find('+') + 1)));
  if (kind == "Upper") {
    for (char& c : text) c = static_cast<char>(std::toupper(c));
    return text;
  }
  if (kind == "Sort") {
    std::multiset<char> digits;
    for (size_t i = 0; i < text.size(); i += 2) digits.insert(text[i]);
    std::string sorted;
    for (const char c : digits) sorted += std::string(sorted.empty() ? "" : " ") + c;
    return sorted;
  }
  if (kind == "Mirror") {
    for (char& c : text) c = static_cast<char>(std::toupper(c));
    return {text.rbegin(), text.rend()};
  }
  return "no such kind: " + kind;
}

TEST(Tasks, AnswersAreRightAndShort) {
  for (const auto& examples : {make_examples(1, 3000), make_mirror_examples(1, 500)})
    for (const auto& [prompt, response] : examples) {
      EXPECT_EQ(response, solve(prompt)) << prompt;
      EXPECT_LE(prompt.size(), 16u) << prompt;
      EXPECT_LE(response.size(), 7u) << prompt;
      EXPECT_EQ(prompt.back(), '\n');
    }
}

TEST(Tasks, TheNewKindIsNotAmongTheOthers) {
  for (const Example& e : make_examples(1, 3000)) EXPECT_FALSE(e.prompt.starts_with("Mirror"));
  for (const Example& e : make_mirror_examples(1, 500)) EXPECT_TRUE(e.prompt.starts_with("Mirror"));
}

TEST(Tasks, KindsComeInEqualParts) {
  std::map<std::string, int> kinds;
  for (const Example& e : make_examples(2, 6000)) ++kinds[e.prompt.substr(0, e.prompt.find(':'))];
  EXPECT_EQ(kinds.size(), 6u);
  // Binomial with mean 1000 and deviation 29: five deviations.
  for (const auto& [kind, times] : kinds) EXPECT_NEAR(times, 1000, 145) << kind;
}

TEST(Tasks, AreAFunctionOfTheSeed) {
  const auto few = make_examples(7, 50), many = make_examples(7, 100);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(few, make_examples(8, 50));
  EXPECT_TRUE(make_examples(7, 0).empty());
}

TEST(Tasks, HeldOutPromptsAreNeverTrainedOn) {
  std::set<std::string> trained;
  for (const uint64_t seed : {1, 2, 3})
    for (const Example& e : split(make_examples(seed, 5000)).train) trained.insert(e.prompt);
  for (const uint64_t seed : {1, 4})
    for (const Example& e : split(make_examples(seed, 5000)).held_out)
      EXPECT_FALSE(trained.contains(e.prompt)) << e.prompt;
}

TEST(Tasks, AboutATenthOfEveryKindIsHeldOutOnce) {
  const auto parts = split(make_examples(3, 12000));
  std::map<std::string, int> kinds;
  std::set<std::string> prompts;
  for (const Example& e : parts.held_out) {
    EXPECT_TRUE(prompts.insert(e.prompt).second) << e.prompt;
    ++kinds[e.prompt.substr(0, e.prompt.find(':'))];
  }
  EXPECT_EQ(kinds.size(), 6u);
  // Of 2000 draws a tenth is held out; repeated prompts count once, and of the 1000 sums a tenth
  // exists.
  for (const auto& [kind, times] : kinds) {
    EXPECT_GT(times, kind == "Add" ? 50 : 100) << kind;
    EXPECT_LT(times, 280) << kind;
  }
  EXPECT_NEAR(static_cast<double>(parts.train.size()), 10800, 200);
}

}  // namespace
}  // namespace capstan
