#include "data/text_sets.h"

#include <gtest/gtest.h>

#include "data/errors.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class TextSets : public testing::Test {
 protected:
  void make(const std::string& file, std::string_view text) {
    fs::create_directories((root.path() / file).parent_path());
    root.write(file, text);
  }
  DataOptions options(DataClass set, const std::optional<SplitNames>& splits = {},
                      bool code = true) {
    return text_set_options(set, {root.path(), splits, code});
  }
  LoadedData load(DataOptions o) {
    o.max_seq_length = 64;
    o.cache = false;
    return load_data(o, tokenizer);
  }

  TempFolder root;
  ByteTokenizer tokenizer;
};

TEST_F(TextSets, OfTinyLlamaAreTwoFoldersAndAThirdForValidation) {
  make("slimpajama/train/a.txt", "prose");
  make("slimpajama/train/b.txt", "more prose");
  make("slimpajama/val/c.txt", "held out");
  expect_error(Fault::file, {"expected the folder ", "/starcoder, found none", "--data TextFiles"},
               [&] { options(DataClass::tinyllama); });
  EXPECT_EQ(load(options(DataClass::microllama)).train.size(), 2);
  EXPECT_EQ(load(options(DataClass::tinyllama, {}, false)).train.size(), 2);
  make("starcoder/d.txt", "int main() {}");
  const LoadedData all = load(options(DataClass::tinyllama));
  EXPECT_EQ(all.train.size(), 3);
  EXPECT_EQ(all.validation.size(), 1);
  EXPECT_NE(all.train.where_of(2).find("starcoder/d.txt"), std::string::npos);
  EXPECT_EQ(all.train.tokens_of(2).size(), 2 + std::string_view("int main() {}").size());
}

TEST_F(TextSets, OfOpenWebTextAndLitDataHaveTheirOwnSplits) {
  make("train/a.txt", "train");
  const DataOptions one = options(DataClass::openwebtext);
  EXPECT_EQ(one.path, root.path());
  EXPECT_EQ(one.validation_fraction, 0.0005);
  make("val/b.txt", "val");
  const DataOptions two = options(DataClass::openwebtext);
  EXPECT_EQ(two.path, root / "train");
  EXPECT_EQ(two.validation_path, root / "val");
  EXPECT_FALSE(two.validation_fraction);
  const DataOptions lit = options(DataClass::litdata, SplitNames{"val", "train"});
  EXPECT_EQ(lit.path, root / "val");
  EXPECT_EQ(lit.validation_path, root / "train");
  EXPECT_EQ(options(DataClass::litdata).path, root.path());
}

TEST_F(TextSets, OfTinyStoriesAreListsOfStoriesOfWhichTheFirstIsHeldOut) {
  const std::string folder = "TinyStories_all_data/";
  make(folder + "data00.json", R"([{"story": "held out", "source": "GPT-4"}])");
  make(folder + "data01.json", R"([{"story": "a cat"}, {"story": "a dog", "summary": "x"}])");
  make(folder + "data02.json", R"([{"story": "a llama"}])");
  make("train/index.json", "{}");
  const LoadedData data = load(options(DataClass::tinystories));
  ASSERT_EQ(data.train.size(), 3);
  ASSERT_EQ(data.validation.size(), 1);
  const auto text = [&](const Dataset& part, int64_t i) {
    const auto tokens = part.tokens_of(i);
    return std::string(tokens.begin() + 1, tokens.end() - 1);
  };
  EXPECT_EQ(text(data.train, 0), "a cat");
  EXPECT_EQ(text(data.train, 1), "a dog");
  EXPECT_EQ(text(data.train, 2), "a llama");
  EXPECT_EQ(text(data.validation, 0), "held out");
  EXPECT_NE(data.train.where_of(2).find("data02.json:1"), std::string::npos);
  make(folder + "data02.json", R"([{"tale": "a llama"}])");
  expect_error(Fault::file, {"data02.json:1", "\"story\"", "\"tale\""},
               [&] { load(options(DataClass::tinystories)); });
}

TEST_F(TextSets, ThatAreMissingSayWhatBelongsThere) {
  expect_error(Fault::file,
               {"data TinyStories: expected the folder data/tinystories, found none", "curl -L",
                "tar xz -C data/tinystories/TinyStories_all_data", "--data.data_path"},
               [] { text_set_options(DataClass::tinystories, {}); });
  expect_error(Fault::file, {"slimpajama/train, ", "slimpajama/val", "starcoder"},
               [&] { options(DataClass::tinyllama); });
  expect_error(Fault::usage, {"s3://bucket/x is not on this machine"},
               [] { text_set_options(DataClass::litdata, {"s3://bucket/x"}); });
}

}  // namespace
}  // namespace capstan
