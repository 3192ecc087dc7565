#include "data/tokenizer/tokenizer_folder.h"

#include <gtest/gtest.h>

#include "data/errors.h"
#include "data/tokenizer/golden_tokens.h"
#include "data/tokenizer/tokenizer_json.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A copy of a tiny tokenizer, whose files can be changed.
class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_unicode()) GTEST_SKIP() << "built without ICU";
  }
  // `inside`: a folder to make within, for rules that ask for its name.
  void copy(const std::string& which, const std::string& inside = "model") {
    folder_ = temp_.path() / inside;
    fs::create_directories(folder_);
    for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"})
      if (fs::exists(golden_tokens() / which / name))
        fs::copy(golden_tokens() / which / name, folder_ / name);
  }
  void write(const char* name, const json& value) { write_text(folder_ / name, value.dump()); }
  std::optional<int32_t> bos() const { return load_tokenizer(folder_)->bos(); }
  int32_t eos() const { return load_tokenizer(folder_)->eos(); }
  std::string refusal() const {
    return message_of(Fault::file, [&] { load_tokenizer(folder_); });
  }
  TempFolder temp_;
  fs::path folder_;
};

TEST_F(TokenizerFolder, BosIsUsedWhenTheConfigSaysSo) {
  copy("bytes");
  EXPECT_EQ(bos(), std::nullopt);
  write("tokenizer_config.json",
        {{"add_bos_token", true}, {"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_EQ(bos(), 0);
  EXPECT_EQ(eos(), 1);
}

TEST_F(TokenizerFolder, BosIsUsedByTheClassOfLlama) {
  copy("pieces");
  EXPECT_EQ(bos(), 1);
  write("tokenizer_config.json", {{"bos_token", {{"content", "<s>"}}},
                                  {"eos_token", {{"content", "</s>"}}},
                                  {"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(bos(), std::nullopt);
}

TEST_F(TokenizerFolder, BosIsUsedWhenTheTemplateBeginsWithIt) {
  copy("split");
  EXPECT_EQ(bos(), load_tokenizer(folder_)->id_of("<|begin_of_text|>"));
  write(
      "tokenizer_config.json",
      {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}, {"add_bos_token", false}});
  EXPECT_EQ(bos(), std::nullopt) << "the config goes first";
}

TEST_F(TokenizerFolder, BosIsUsedByTheNamesThatLitGptKnows) {
  copy("bytes", "Llama-3.2-1B");
  EXPECT_EQ(bos(), 0);
}

// A copy of it may have another name.
TEST_F(TokenizerFolder, WhatTheNameSaysOfBosIsWrittenForACopy) {
  copy("bytes");
  EXPECT_EQ(config_with_bos(folder_), "") << "the name says nothing";
  copy("bytes", "Llama-3.2-1B");
  const std::string config = config_with_bos(folder_);
  ASSERT_NE(config, "");
  folder_ = temp_.path() / "model";
  EXPECT_EQ(bos(), std::nullopt);
  write_text(folder_ / kTokenizerConfig, config);
  EXPECT_EQ(bos(), 0);
}

TEST_F(TokenizerFolder, AFolderBesideItMayNameEos) {
  copy("bytes", "base");
  const fs::path base = folder_;
  copy("bytes", "adapter");
  for (const fs::path& folder : {base, folder_}) fs::remove(folder / "tokenizer_config.json");
  write_text(base / "config.json", json({{"eos_token_id", 1}}).dump());
  EXPECT_NE(refusal(), "");
  EXPECT_EQ(load_tokenizer(folder_, base)->eos(), 1);
}

TEST_F(TokenizerFolder, WithoutAConfigNoBosIsUsedAndOtherFilesNameEos) {
  copy("bytes");
  fs::remove(folder_ / "tokenizer_config.json");
  EXPECT_NE(refusal().find("eos_token"), std::string::npos);
  write("config.json", {{"eos_token_id", 3}});
  EXPECT_EQ(eos(), 3);
  write("generation_config.json", {{"eos_token_id", {7, 8}}});
  EXPECT_EQ(eos(), 7);
  write("special_tokens_map.json", {{"eos_token", "</s>"}});
  EXPECT_EQ(eos(), 1);
  EXPECT_EQ(bos(), std::nullopt);
}

TEST_F(TokenizerFolder, AModelNamesItsOwnEnds) {
  copy("model");
  EXPECT_EQ(bos(), 1);
  EXPECT_EQ(eos(), 2);
  fs::remove(folder_ / "tokenizer_config.json");
  EXPECT_EQ(bos(), std::nullopt);
  EXPECT_EQ(eos(), 2);
}

TEST_F(TokenizerFolder, WhatTheSideFilesHaveWrongIsNamed) {
  copy("bytes");
  write("tokenizer_config.json", {{"eos_token", "<none>"}});
  EXPECT_NE(refusal().find("tokenizer_config.json:1:2: eos_token: the tokenizer has no token"),
            std::string::npos)
      << refusal();
  write("tokenizer_config.json", {{"eos_token", 5}});
  EXPECT_NE(refusal().find("expected a token's text"), std::string::npos);
  write("tokenizer_config.json", {{"eos_token", "</s>"}, {"add_bos_token", "yes"}});
  EXPECT_NE(refusal().find("add_bos_token: expected true or false"), std::string::npos);
  write("tokenizer_config.json", {{"eos_token", "</s>"}, {"add_bos_token", true}});
  EXPECT_NE(refusal().find("no file names it"), std::string::npos);
  write("tokenizer_config.json", json::object());
  write("generation_config.json", {{"eos_token_id", 100000}});
  EXPECT_NE(refusal().find("expected an id from 0 to"), std::string::npos);
}

TEST_F(TokenizerFolder, OurByteTokenizerIsItself) {
  temp_.write("tokenizer.json", byte_tokenizer_json());
  const auto tokenizer = load_tokenizer(temp_.path());
  EXPECT_NE(dynamic_cast<const ByteTokenizer*>(tokenizer.get()), nullptr);
  EXPECT_EQ(tokenizer->fingerprint(), ByteTokenizer().fingerprint());
}

TEST_F(TokenizerFolder, WithoutATokenizerItIsRefused) {
  expect_error(Fault::file, {"neither a tokenizer.json nor a tokenizer.model"},
               [&] { load_tokenizer(temp_.path()); });
  expect_error(Fault::file, {"there is no such folder"},
               [&] { load_tokenizer(temp_.path() / "none"); });
}

TEST_F(TokenizerFolder, FingerprintsTellWhatDecidesIds) {
  copy("bytes");
  const std::string before = load_tokenizer(folder_)->fingerprint();
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), before);
  write("tokenizer_config.json",
        {{"add_bos_token", true}, {"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_NE(load_tokenizer(folder_)->fingerprint(), before) << "bos is used now";
  EXPECT_NE(load_tokenizer(golden_tokens() / "split")->fingerprint(), before);
}

TEST_F(TokenizerFolder, ListsTheFilesThatGoAlong) {
  copy("bytes");
  temp_.write("model/model.safetensors", "");
  temp_.write("model/chat_template.jinja", "");
  std::vector<std::string> names;
  for (const fs::path& path : tokenizer_files(folder_)) names.push_back(path.filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json",
                                             "chat_template.jinja"}));
}

}  // namespace
}  // namespace capstan
