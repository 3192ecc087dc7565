#include "data/example.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/dataset/first_target.h"
#include "data/errors.h"
#include "data/records/text_files.h"
#include "data/tokenizer/fake_tokenizer.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;

TEST(Example, IsBosPromptResponseEos) {
  Dataset data;
  add_example(data, ByteTokenizer(), {"p:", "ok"}, false);
  const auto tokens = data.tokens_of(0);
  EXPECT_EQ(Ids(tokens.begin(), tokens.end()), (Ids{256, 'p', ':', 'o', 'k', 257}));
  EXPECT_EQ(data.targets_of(0, 100), 5) << "nothing is masked";
}

TEST(Example, AMaskedPromptLeavesResponseAndEos) {
  Dataset data;
  add_example(data, ByteTokenizer(), {"p:", "ok"}, true);
  EXPECT_EQ(first_target(data, 0), 3);
  EXPECT_EQ(data.targets_of(0, 100), 3) << "o, k, eos";
}

TEST(Example, AnEmptyResponseTeachesToStop) {
  Dataset data;
  add_example(data, ByteTokenizer(), {"p:", ""}, true);
  EXPECT_EQ(data.targets_of(0, 100), 1);
}

// "bb" is one token.
FakeTokenizer pairs() {
  return FakeTokenizer({}, "", "", {"bb"});
}
constexpr int32_t kPair = FakeTokenizer::kFirstMerge;

TEST(Example, IsEncodedAsOneText) {
  Dataset data;
  add_example(data, pairs(), {"ab", "bc"}, true);
  const auto tokens = data.tokens_of(0);
  EXPECT_EQ(Ids(tokens.begin(), tokens.end()), (Ids{'a', kPair, 'c', 257}));
  EXPECT_EQ(first_target(data, 0), 1) << "the token that spans the border";
}

TEST(Example, EosCountsEvenWhereTheBorderVanishes) {
  Dataset data;
  add_example(data, pairs(), {"b", "b"}, true);
  EXPECT_EQ(data.targets_of(0, 100), 1) << "nothing predicts the first token";
}

TEST(Example, RefusesOneWithoutText) {
  const std::vector<Example> examples = {{"a", "b"}, {"", ""}};
  expect_error(Fault::file, {"sample 1", "both empty"},
               [&] { make_dataset(examples, ByteTokenizer(), true); });
}

}  // namespace
}  // namespace capstan
