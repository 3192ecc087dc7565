#include "data/lint.h"

#include <gtest/gtest.h>

#include "data/tokenizer/fake_tokenizer.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;
using Spans = std::vector<TargetSpan>;

const FakeTokenizer kTokenizer({"<s>", "</s>", "<|end|>"}, "<s>", "</s>");
constexpr int32_t kBos = 300, kEos = 301, kEnd = 302;

TEST(Lint, FindsEachKindOnce) {
  Dataset data;
  data.add(Ids{kBos, 1, 2, kEos}, 0);
  data.add(Ids{kBos, kBos, 1, kEos}, 0);
  data.add(Ids{kBos, 3, 4}, 0);
  data.add(Ids{kBos, 5, kEos}, 3);
  data.add(Ids{kBos, 1, 2, 3, 4, 5, 6, kEos}, 0);
  data.add(Ids{kBos, 6, kEos}, Spans{{2, 3}}, {.flags = SampleOrigin::empty_response});
  data.add(Ids{kBos, 1, 2, kEos}, 0);
  data.add(Ids{kBos, 7, kEos}, Spans{{0, 3}}, {.flags = SampleOrigin::joined_input});
  data.add(Ids{kBos, 8, kEos}, Spans{{0, 3}}, {.flags = SampleOrigin::first_turn});
  data.add(Ids{kBos, 9, kEos}, Spans{{0, 3}}, {.flags = SampleOrigin::joined_system});
  const LintReport r = lint(data, kTokenizer, {.max_seq_length = 6});
  EXPECT_EQ(r.samples, 10);
  const std::pair<const LintFinding*, std::string> expected[] = {
      {&r.doubled_bos, "sample 1"},    {&r.missing_eos, "sample 2"},
      {&r.all_masked, "sample 3"},     {&r.truncated, "sample 4"},
      {&r.empty_response, "sample 5"}, {&r.duplicate, "sample 6"},
      {&r.joined_input, "sample 7"},   {&r.first_turn, "sample 8"},
      {&r.joined_system, "sample 9"},
  };
  for (const auto& e : expected) {
    EXPECT_EQ(e.first->count, 1) << e.second;
    EXPECT_EQ(e.first->places, std::vector<std::string>{e.second});
  }
  EXPECT_FALSE(r.clean());
  EXPECT_EQ(warnings(r).size(), 9u);
  EXPECT_EQ(
      warnings(r)[0],
      "1 of 10 samples begins with two bos tokens: the text itself contains one. Remove it from "
      "the data (sample 1)");
}

TEST(Lint, AnAnswerMayEndWithTheTemplatesToken) {
  Dataset data;
  data.add(Ids{1, 2, kEnd, 10}, Spans{{1, 3}});
  EXPECT_EQ(lint(data, kTokenizer, {.max_seq_length = 9}).missing_eos.count, 1);
  EXPECT_TRUE(lint(data, kTokenizer, {.max_seq_length = 9, .ends = {kEnd}}).clean());
}

TEST(Lint, PiecesOfDocumentsNeedNoEnds) {
  Dataset data;
  data.add(Ids{1, 2, 3}, 0);
  data.add(Ids{1, 2, 3}, 0);
  EXPECT_TRUE(lint(data, kTokenizer, {.max_seq_length = 9, .documents = true}).clean());
}

TEST(Lint, ShowsTheFirstPlacesAndCountsAll) {
  Dataset data;
  for (int32_t i = 0; i < 10; ++i) data.add(Ids{1, 2, i + 50}, 0);
  const LintReport one = lint(data, kTokenizer, {.max_seq_length = 9});
  EXPECT_EQ(one.missing_eos.count, 10);
  const LintReport both = merge(one, one);
  EXPECT_EQ(both.samples, 20);
  EXPECT_EQ(both.missing_eos.count, 20);
  const auto lines = warnings(both);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("20 of 20 samples do not end"));
  EXPECT_TRUE(lines[0].ends_with("(sample 0, sample 1, sample 2, …)")) << lines[0];
}

}  // namespace
}  // namespace capstan
