#include "data/example.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

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
  EXPECT_EQ(data.first_target_of(0), 3);
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
  EXPECT_EQ(data.first_target_of(0), 1) << "the token that spans the border";
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

TEST(Jsonl, HoldsOneRecordPerLine) {
  const TempFolder folder;
  const std::vector<Example> examples = {{"Say \"hi\"\n", "hi"}, {"\u00e9\t", ""}};
  write_jsonl(folder.path() / "x.jsonl", examples);
  const std::string text = read_utf8_file(folder.path() / "x.jsonl");
  EXPECT_TRUE(text.starts_with(R"({"instruction":"Say \"hi\"\n","output":"hi"})"
                               "\n"))
      << text;
  std::istringstream lines(text);
  std::string line;
  for (const Example& example : examples) {
    ASSERT_TRUE(std::getline(lines, line));
    const auto record = nlohmann::json::parse(line);
    EXPECT_EQ(record.at("instruction"), example.prompt);
    EXPECT_EQ(record.at("output"), example.response);
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Jsonl, SaysWhereItCannotWrite) {
  const std::vector<Example> good = {{"a", "b"}}, bad = {{"a", "b"}, {"a", "\xff"}};
  expect_error(Fault::file, {"/nowhere/x.jsonl: cannot write: No such file"},
               [&] { write_jsonl("/nowhere/x.jsonl", good); });
  const TempFolder folder;
  expect_error(Fault::file, {"x.jsonl:2", "not valid UTF-8"},
               [&] { write_jsonl(folder.path() / "x.jsonl", bad); });
}

}  // namespace
}  // namespace capstan
