// Ids and texts as the reference libraries make them (tools/golden/make_tokens.py).
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <thread>

#include "base/checksum.h"
#include "base/utf8.h"
#include "data/tokenizer/golden_tokens.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

void expect_same_ids(const Tokenizer& tokenizer, const json& expected) {
  const std::vector<std::string> texts = golden_texts();
  ASSERT_EQ(texts.size(), expected["ids"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(texts[i]), expected["ids"][i].get<std::vector<int32_t>>())
        << "of text " << i << ": " << json(texts[i]).dump();
  }
}

void expect_same_texts(const Tokenizer& tokenizer, const json& expected) {
  for (const json& pair : expected["decoded"]) {
    const auto ids = pair[0].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids), pair[1].get<std::string>()) << pair[0].dump();
  }
}

// Piece by piece, in whole characters, the same.
void expect_same_streams(const Tokenizer& tokenizer, const json& expected) {
  std::vector<json> all;
  for (const json& pair : expected["decoded"]) all.push_back(pair[0]);
  for (const json& ids : expected["ids"]) all.push_back(ids);
  for (const json& ids : all) {
    const auto numbers = ids.get<std::vector<int32_t>>();
    const std::unique_ptr<TextStream> stream = tokenizer.stream();
    std::string text;
    for (const int32_t id : numbers) {
      const std::string piece = stream->push(id);
      EXPECT_EQ(invalid_utf8(piece), std::nullopt) << "half a character";
      text += piece;
    }
    text += stream->finish();
    EXPECT_EQ(text, tokenizer.decode(numbers)) << ids.dump();
  }
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (!has_unicode() && name != "pieces" && name != "model") GTEST_SKIP() << "built without ICU";
  }
  fs::path folder() const { return golden_tokens() / GetParam(); }
  json expected() const { return read_json(folder() / "expected.json"); }
};

TEST_P(Golden, TextsHaveTheReferencesIds) {
  expect_same_ids(*load_tokenizer(folder()), expected());
}

TEST_P(Golden, IdsHaveTheReferencesText) {
  expect_same_texts(*load_tokenizer(folder()), expected());
}

TEST_P(Golden, AStreamGivesTheSameInWholeCharacters) {
  expect_same_streams(*load_tokenizer(folder()), expected());
}

// Wherever a text is cut between two characters, its second part is given as it stands in the
// whole.
TEST_P(Golden, AContinuationIsDecodedAsOne) {
  const auto tokenizer = load_tokenizer(folder());
  constexpr size_t kMost = 40;
  int cuts = 0, with_space = 0;
  const json golden = expected();
  for (const json& list : golden["ids"]) {
    auto ids = list.get<std::vector<int32_t>>();
    ids.resize(std::min(ids.size(), kMost));
    const std::string whole = tokenizer->decode(ids);
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      const auto before = std::span(ids).first(cut), after = std::span(ids).subspan(cut);
      const std::string first = tokenizer->decode(before);
      if (!whole.starts_with(first) || first.ends_with("\uFFFD")) continue;  // in a character
      const std::string rest = whole.substr(first.size());
      EXPECT_EQ(tokenizer->decode_after(before, after), rest) << list.dump() << " at " << cut;
      const auto stream = tokenizer->stream_after(before);
      std::string pieces;
      for (const int32_t id : after) pieces += stream->push(id);
      EXPECT_EQ(pieces + stream->finish(), rest) << list.dump() << " at " << cut;
      ++cuts;
      with_space += !first.empty() && rest.starts_with(' ');
    }
  }
  EXPECT_GT(cuts, 100);
  EXPECT_GT(with_space, 10);
}

TEST_P(Golden, ThreadsShareATokenizer) {
  const auto tokenizer = load_tokenizer(folder());
  const json golden = expected();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back([&] { expect_same_ids(*tokenizer, golden); });
  for (std::thread& t : threads) t.join();
}

TEST_P(Golden, EveryIdIsBelowTheSizeAndFoundByItsName) {
  const auto tokenizer = load_tokenizer(folder());
  const json golden = expected();
  for (const json& ids : golden["ids"])
    for (const json& id : ids) EXPECT_LT(id.get<int32_t>(), tokenizer->vocab_size());
  EXPECT_LT(tokenizer->eos(), tokenizer->vocab_size());
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{tokenizer->eos()}), "");
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Golden,
                         testing::Values("bytes", "split", "pieces", "metaspace", "mixed", "model"),
                         [](const auto& tiny) { return std::string(tiny.param); });

std::vector<std::string> real_lines() {
  std::vector<std::string> lines;
  for (const json& record : read_json(shared_data() / "gsm8k_train.json")) {
    lines.push_back(record["instruction"].get<std::string>() + "\n" +
                    record["output"].get<std::string>());
  }
  const std::string play = read_text(shared_data() / "tinyshakespeare.txt");
  for (size_t begin = 0; begin <= play.size();) {
    const size_t end = std::min(play.find('\n', begin), play.size());
    lines.push_back(play.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The same hash as block_hashes of make_tokens.py.
std::string hash_of_block(const Tokenizer& tokenizer, std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) {
    const std::vector<int32_t> ids = tokenizer.encode(line);
    text += fmt::format("{}\n", fmt::join(ids, " "));
  }
  return sha256_of(text).substr(0, 8);
}

class Known : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (!has_unicode() && !name.starts_with("llama2")) GTEST_SKIP() << "built without ICU";
    if (name == "llama2_model") {
      if (!fs::exists(shared_data() / "llama2_tokenizer.model")) GTEST_SKIP() << "no shared data";
      fs::copy(shared_data() / "llama2_tokenizer.model", copy_ / "tokenizer.model");
      tokenizer_ = load_tokenizer(copy_.path());
    } else {
      if (!fs::exists(shared_data() / "tokenizers" / name)) GTEST_SKIP() << "no shared data";
      tokenizer_ = load_tokenizer(shared_data() / "tokenizers" / name);
    }
    expected_ = read_json(golden_tokens() / (name + ".json"));
  }
  TempFolder copy_;
  std::unique_ptr<Tokenizer> tokenizer_;
  json expected_;
};

TEST_P(Known, TextsHaveTheReferencesIds) {
  expect_same_ids(*tokenizer_, expected_);
  expect_same_texts(*tokenizer_, expected_);
  expect_same_streams(*tokenizer_, expected_);
}

TEST_P(Known, FortySevenThousandRealLinesHaveTheReferencesIds) {
  const std::vector<std::string> lines = real_lines();
  ASSERT_EQ(expected_["blocks"].size(), (lines.size() + 99) / 100);
  for (size_t i = 0; i * 100 < lines.size(); ++i) {
    const auto block =
        std::span(lines).subspan(i * 100, std::min<size_t>(100, lines.size() - i * 100));
    EXPECT_EQ(hash_of_block(*tokenizer_, block), expected_["blocks"][i].get<std::string>())
        << "lines from " << i * 100;
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, Known,
                         testing::Values("llama2", "llama3.2", "qwen2.5", "llama2_model"),
                         [](const auto& known) {
                           std::string name = known.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace capstan
