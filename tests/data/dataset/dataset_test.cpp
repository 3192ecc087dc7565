#include "data/dataset/dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "data/dataset/first_target.h"
#include "data/errors.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;

Ids to_ids(std::span<const int32_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST(Dataset, ReturnsWhatWasAdded) {
  Dataset data;
  EXPECT_EQ(data.size(), 0);
  EXPECT_EQ(data.longest(), 0);
  data.add(Ids{1, 2, 3}, 1);
  data.add(Ids{4, 5}, 0);
  data.add(Ids{6, 7, 8, 9}, 4);
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(data.tokens(), 9);
  EXPECT_EQ(data.longest(), 4);
  EXPECT_EQ(to_ids(data.tokens_of(0)), (Ids{1, 2, 3}));
  EXPECT_EQ(to_ids(data.tokens_of(1)), (Ids{4, 5}));
  EXPECT_EQ(to_ids(data.tokens_of(2)), (Ids{6, 7, 8, 9}));
  EXPECT_EQ(first_target(data, 2), 4);
}

TEST(Dataset, CountsInputsAndTargetsAfterTheCut) {
  Dataset data;
  data.add(Ids{1, 2, 3, 4, 5}, 0);
  data.add(Ids{1, 2, 3, 4, 5}, 1);
  data.add(Ids{1, 2, 3, 4, 5}, 3);
  data.add(Ids{1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(data.inputs_of(0, 100), 4);
  EXPECT_EQ(data.inputs_of(0, 4), 4);
  EXPECT_EQ(data.inputs_of(0, 3), 3);
  EXPECT_EQ(data.targets_of(0, 100), 4);
  EXPECT_EQ(data.targets_of(1, 100), 4) << "nothing predicts token 0";
  EXPECT_EQ(data.targets_of(2, 100), 2) << "tokens 3 and 4";
  EXPECT_EQ(data.targets_of(2, 3), 1) << "token 3 is the label of the last input that is kept";
  EXPECT_EQ(data.targets_of(2, 2), 0);
  EXPECT_EQ(data.targets_of(3, 100), 0);
}

TEST(Dataset, CountSaysWhatIsCutAndWhatTeachesNothing) {
  Dataset data;
  data.add(Ids{1, 2, 3, 4, 5}, 4);  // cut at 3 inputs: its only target is gone
  data.add(Ids{1, 2, 3, 4}, 0);     // just fits
  data.add(Ids{1, 2}, 2);           // nothing counts
  const DatasetCounts c = count(data, 3);
  EXPECT_EQ(c.inputs, 3 + 3 + 1);
  EXPECT_EQ(c.targets, 3);
  EXPECT_EQ(c.longest, 3);
  EXPECT_EQ(c.truncated, 1);
  EXPECT_EQ(c.all_masked, 2);
}

TEST(Dataset, RefusesWhatCannotBeASample) {
  Dataset data;
  expect_error(Fault::bug, {"at least two tokens", "1"}, [&] { data.add(Ids{7}, 0); });
  expect_error(Fault::bug, {"token 3"}, [&] { data.add(Ids{7, 8}, 3); });
  expect_error(Fault::bug, {"no sample 0"}, [&] { data.tokens_of(0); });
  EXPECT_EQ(data.size(), 0);
}

using Spans = std::vector<TargetSpan>;

TEST(Dataset, HoldsSeveralTargetSpans) {
  Dataset data;
  data.add(Ids{0, 1, 2, 3, 4, 5, 6, 7}, Spans{{0, 2}, {4, 4}, {4, 6}, {6, 7}});
  const auto spans = data.target_spans_of(0);
  EXPECT_EQ(Spans(spans.begin(), spans.end()), (Spans{{0, 2}, {4, 7}}))
      << "empty ones are left out, neighbours joined";
  EXPECT_EQ(data.targets_of(0, 100), 4) << "tokens 1, 4, 5, 6";
  EXPECT_EQ(data.targets_of(0, 5), 3) << "labels up to token 5";
  EXPECT_EQ(data.targets_of(0, 3), 1);
  expect_error(Fault::bug, {"2 … 1"}, [&] { data.add(Ids{1, 2, 3}, Spans{{2, 1}}); });
  expect_error(Fault::bug, {"1 … 3"}, [&] { data.add(Ids{1, 2, 3}, Spans{{0, 2}, {1, 3}}); });
  expect_error(Fault::bug, {"1 … 4"}, [&] { data.add(Ids{1, 2, 3}, Spans{{1, 4}}); });
  EXPECT_EQ(data.size(), 1);
}

TEST(Dataset, CutsTokensOrInputs) {
  Dataset data;
  data.add(Ids{1, 2, 3, 4, 5, 6}, 0);
  EXPECT_EQ(data.inputs_of(0, 4), 4) << "five tokens";
  data.set_cut(Cut::tokens);
  EXPECT_EQ(data.inputs_of(0, 4), 3) << "four tokens";
  EXPECT_EQ(data.targets_of(0, 4), 3);
  EXPECT_EQ(data.inputs_of(0, 6), 5);
  EXPECT_EQ(count(data, 6).truncated, 0);
  EXPECT_EQ(count(data, 5).truncated, 1);
  EXPECT_EQ(split(data, 0, 1).train.cut(), Cut::tokens) << "parts cut alike";
}

TEST(Dataset, NamesSamplesByTheirPlace) {
  Dataset data;
  data.add(Ids{1, 2}, 0);
  const int32_t file = data.add_file("a.jsonl");
  EXPECT_EQ(data.add_file("a.jsonl"), file);
  data.add(Ids{3, 4}, Spans{{0, 2}}, {.file = file, .line = 17});
  data.add(Ids{5, 6}, Spans{{0, 2}}, {.file = file});
  for (int i = 0; i < 3; ++i) data.add(Ids{7, 8}, Spans{{0, 2}}, {.file = file, .line = 18});
  EXPECT_EQ(data.where_of(4), "a.jsonl:18 (record 4)") << "of the file";
  const int64_t picked[] = {2, 1, 0};
  const Dataset part = data.part(picked);
  EXPECT_EQ(part.where_of(0), "a.jsonl (sample 2)");
  EXPECT_EQ(part.where_of(1), "a.jsonl:17");
  EXPECT_EQ(part.where_of(2), "sample 0");
  EXPECT_EQ(part.id_of(0), 2) << "its number before the split";
  EXPECT_EQ(part.tokens(), 6);
  EXPECT_EQ(part.longest(), 2);
}

TEST(Dataset, CopiesShareUntilOneGrows) {
  Dataset data;
  data.add(Ids{1, 2}, 0);
  Dataset copy = data;
  EXPECT_EQ(copy.tokens_of(0).data(), data.tokens_of(0).data());
  copy.add(Ids{3, 4, 5}, 0);
  EXPECT_EQ(copy.size(), 2);
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.longest(), 2);
  const int64_t picked[] = {0};
  Dataset part = data.part(picked);
  expect_error(Fault::bug, {"part of a dataset"}, [&] { part.add(Ids{1, 2}, 0); });
}

Dataset numbered(int32_t n) {
  Dataset data;
  for (int32_t i = 0; i < n; ++i) data.add(Ids{i, i + 1}, i % 3);
  return data;
}

std::set<int32_t> first_tokens(const Dataset& data) {
  std::set<int32_t> found;
  for (int64_t i = 0; i < data.size(); ++i) {
    found.insert(data.tokens_of(i)[0]);
    EXPECT_EQ(first_target(data, i), data.tokens_of(i)[0] % 3) << "the mask goes along";
  }
  return found;
}

TEST(Split, PutsEverySampleInExactlyOnePart) {
  const Split parts = split(numbered(100), 0.25, 42);
  EXPECT_EQ(parts.train.size(), 75);
  EXPECT_EQ(parts.validation.size(), 25);
  std::set<int32_t> all = first_tokens(parts.train);
  all.merge(first_tokens(parts.validation));
  EXPECT_EQ(all.size(), 100u);
}

TEST(Split, CopiesNoTokens) {
  const Dataset data = numbered(10);
  const Split parts = split(data, 0.3, 1);
  for (const Dataset* part : {&parts.train, &parts.validation})
    for (int64_t i = 0; i < part->size(); ++i)
      EXPECT_EQ(part->tokens_of(i).data(), data.tokens_of(part->id_of(i)).data());
}

TEST(Split, DependsOnTheSeedAlone) {
  const auto held = [](uint64_t seed) {
    return first_tokens(split(numbered(100), 0.1, seed).validation);
  };
  EXPECT_EQ(held(1), held(1));
  EXPECT_NE(held(1), held(2));
}

TEST(Split, KeepsAtLeastOneSampleOnEachSide) {
  EXPECT_EQ(split(numbered(5), 0.0, 1).validation.size(), 0);
  EXPECT_EQ(split(numbered(5), 1e-9, 1).validation.size(), 1);
  EXPECT_EQ(split(numbered(5), 0.999, 1).train.size(), 1);
  expect_error(Fault::file, {"the data has only 1 sample, ", "Give more data"},
               [] { split(numbered(1), 0.1, 1); });
  expect_error(Fault::usage, {"at least 0 and below 1", "1.5"}, [] { split(numbered(5), 1.5, 1); });
}

}  // namespace
}  // namespace capstan
