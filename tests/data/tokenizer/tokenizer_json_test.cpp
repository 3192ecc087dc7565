#include "data/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/tokenizer.h"
#include "support/message_of.h"

namespace capstan {
namespace {

using nlohmann::json;

json ours() {
  return json::parse(byte_tokenizer_json());
}
bool accepted(const json& j) {
  return is_byte_tokenizer(j.dump(), "tokenizer.json");
}

TEST(ByteTokenizerJson, IsRecognized) {
  EXPECT_TRUE(is_byte_tokenizer(byte_tokenizer_json(), "tokenizer.json"));
  EXPECT_TRUE(accepted(ours())) << "keys in another order";
}

TEST(ByteTokenizerJson, HasOneTokenForEachByteAndTheSpecialOnes) {
  const json vocab = ours()["model"]["vocab"];
  EXPECT_EQ(vocab.size(), static_cast<size_t>(ByteTokenizer().vocab_size()));
  std::vector<bool> there(vocab.size());
  for (const auto& [token, id] : vocab.items()) there.at(id.get<size_t>()) = true;
  EXPECT_EQ(std::count(there.begin(), there.end(), false), 0);
  EXPECT_EQ(vocab["A"], 'A');
  EXPECT_EQ(vocab["\u0120"], ' ') << "as GPT-2 writes a space";
  EXPECT_EQ(vocab["\u010A"], '\n') << "as GPT-2 writes a line's end";
  EXPECT_EQ(vocab["\u00C3"], 0xC3);
  EXPECT_EQ(vocab["<s>"], ByteTokenizer::kBos);
  EXPECT_EQ(vocab["</s>"], ByteTokenizer::kEos);
  EXPECT_EQ(vocab["<pad>"], ByteTokenizer::kPad);
}

TEST(ByteTokenizerJson, TheConfigNamesTheSpecialTokens) {
  const json config = json::parse(byte_tokenizer_config_json());
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["pad_token"], "<pad>");
}

TEST(ByteTokenizerJson, OtherTokenizersAreNot) {
  EXPECT_FALSE(accepted(json::object()));
  EXPECT_FALSE(accepted(json::array()));
  EXPECT_FALSE(accepted(nullptr));
  EXPECT_FALSE(accepted({{"model", nullptr}}));
  EXPECT_FALSE(accepted({{"model", {{"type", "BPE"}}}}));

  json swapped = ours();
  std::swap(swapped["model"]["vocab"]["a"], swapped["model"]["vocab"]["b"]);
  EXPECT_FALSE(accepted(swapped));
  json merging = ours();
  merging["model"]["merges"] = {"a b"};
  EXPECT_FALSE(accepted(merging));
  json larger = ours();
  larger["model"]["vocab"]["ab"] = 259;
  EXPECT_FALSE(accepted(larger));
}

TEST(ByteTokenizerJson, BrokenJsonIsAnErrorWithItsPlace) {
  const auto refusal = [](std::string_view text) {
    return message_of(Fault::file, [&] { is_byte_tokenizer(text, "t/tokenizer.json"); });
  };
  EXPECT_EQ(refusal("").rfind("t/tokenizer.json:1:1: ", 0), 0u);
  EXPECT_EQ(refusal("{\n  \"model\": }").rfind("t/tokenizer.json:2:12: ", 0), 0u);
  const std::string half = byte_tokenizer_json().substr(0, 500);
  EXPECT_EQ(refusal(half).rfind("t/tokenizer.json:", 0), 0u);
}

}  // namespace
}  // namespace capstan
