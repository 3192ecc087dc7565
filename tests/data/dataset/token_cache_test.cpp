#include "data/dataset/token_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/files.h"
#include "data/dataset/dataset.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

using Ids = std::vector<int32_t>;
using Spans = std::vector<TargetSpan>;

OwnedSamples some_samples() {
  OwnedSamples samples;
  const int32_t file = samples.file("a.jsonl");
  samples.add(Ids{1, 2, 3}, Spans{{0, 1}, {2, 3}}, {.file = file, .line = 1});
  samples.add(Ids{4, 5}, Spans{}, {.file = file, .flags = SampleOrigin::empty_response, .line = 7});
  samples.add(Ids{6, 7, 8, 9, 10}, Spans{{1, 5}}, {.file = file, .line = 9});
  return samples;
}

const TokenCacheKey kKey{.contents = "c", .tokenizer = "t", .rendering = "r"};

void expect_same(const Samples& a, const Samples& b) {
  const Dataset x(std::make_shared<OwnedSamples>(a)), y(std::make_shared<OwnedSamples>(b));
  ASSERT_EQ(x.size(), y.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(x.tokens_of(i), y.tokens_of(i)));
    EXPECT_TRUE(std::ranges::equal(x.target_spans_of(i), y.target_spans_of(i)));
    EXPECT_EQ(x.origin_of(i), y.origin_of(i));
  }
}

TEST(TokenCache, ReturnsWhatWasStoredUnderTheNamesOfToday) {
  const TempFolder folder;
  const fs::path cache = folder / "deep/er";
  EXPECT_EQ(read_token_cache(cache, kKey, {}), nullptr);
  ASSERT_TRUE(write_token_cache(cache, kKey, some_samples()));
  const auto found = read_token_cache(cache, kKey, {"moved.jsonl"});
  ASSERT_NE(found, nullptr);
  expect_same(*found, some_samples());
  EXPECT_EQ(Dataset(found).where_of(1), "moved.jsonl:7");
  int64_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(cache)) ++files;
  EXPECT_EQ(files, 1) << "nothing is left beside it";
}

TEST(TokenCache, KeysDependOnEverything) {
  std::vector<TokenCacheKey> keys(7, kKey);
  keys[1].contents = "x";
  keys[2].tokenizer = "x";
  keys[3].rendering = "x";
  keys[4].mask_prompt = true;
  keys[5].max_seq_length = 1;
  keys[6].contents = "ct", keys[6].tokenizer = "";  // the same letters
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i].hex(), keys[j].hex()) << i << " " << j;
  EXPECT_EQ(kKey.hex().size(), 64u);
}

TEST(TokenCache, EveryDamageIsSeen) {
  const TempFolder folder;
  ASSERT_TRUE(write_token_cache(folder.path(), kKey, some_samples()));
  const fs::path path = folder.path() / (kKey.hex() + ".tokens");
  const std::string good = read_text(path);
  const auto usable = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return read_token_cache(folder.path(), kKey, {}) != nullptr;
  };
  testing::internal::CaptureStderr();  // a warning for each
  EXPECT_TRUE(usable(good));
  for (size_t i = 0; i < good.size(); ++i) {
    if (i >= 240 && i < 256) continue;  // filling
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    ASSERT_FALSE(usable(bad)) << "byte " << i;
  }
  for (const size_t n : {size_t{0}, size_t{100}, size_t{256}, good.size() - 1})
    EXPECT_FALSE(usable(good.substr(0, n))) << n;
  EXPECT_FALSE(usable(good + std::string(64, '\0')));
  EXPECT_FALSE(usable("something else entirely"));
  testing::internal::GetCapturedStderr();
}

// Of a mapped file the first would change the tokens, and the second end the process by SIGBUS.
TEST(TokenCache, WhoChangesTheFileLaterChangesNoSample) {
  const TempFolder folder;
  ASSERT_TRUE(write_token_cache(folder.path(), kKey, some_samples()));
  const fs::path path = folder.path() / (kKey.hex() + ".tokens");
  const auto found = read_token_cache(folder.path(), kKey, {});
  ASSERT_NE(found, nullptr);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(256);
    file << std::string(fs::file_size(path) - 256, '\x7f');
  }
  expect_same(*found, some_samples());
  fs::resize_file(path, 0);
  expect_same(*found, some_samples());
}

TEST(TokenCache, AnotherFilesContentsAreForeign) {
  const TempFolder folder;
  TokenCacheKey other = kKey;
  other.contents = "other";
  ASSERT_TRUE(write_token_cache(folder.path(), kKey, some_samples()));
  fs::rename(folder.path() / (kKey.hex() + ".tokens"), folder.path() / (other.hex() + ".tokens"));
  EXPECT_EQ(read_token_cache(folder.path(), other, {}), nullptr);
}

TEST(TokenCache, AFolderThatCannotBeIsNoError) {
  const TempFolder folder;
  folder.write("file", "");
  EXPECT_FALSE(write_token_cache(folder / "file", kKey, some_samples()));
  EXPECT_FALSE(write_token_cache("", kKey, some_samples()));
  EXPECT_EQ(read_token_cache("", kKey, {}), nullptr);
}

TEST(TokenCache, FolderFollowsTheVariables) {
  const Variable home("HOME", "/h");
  {
    const Variable own("CAPSTAN_CACHE", "/c"), xdg("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(token_cache_folder(), "/c");
  }
  const Variable own("CAPSTAN_CACHE", nullptr);
  {
    const Variable xdg("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(token_cache_folder(), "/x/capstan/tokens");
  }
  const Variable xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(token_cache_folder(), "/h/.cache/capstan/tokens");
  const Variable none("HOME", nullptr);
  EXPECT_EQ(token_cache_folder(), "");
}

}  // namespace
}  // namespace capstan
