#include "report/trackers/wandb_file.h"

#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

TEST(WandbFile, RecordsEndWhereTheyWerePut) {
  std::mt19937_64 random(11);
  std::string bytes = wandb_file_begin();
  std::vector<int64_t> ends;
  // Empty ones, and ones that end at, before and after the ends of blocks of 32 KiB.
  for (const size_t size : {0, 5, 32 * 1024 - 7 - 30, 16, 1, 100'000, 70'000, 3}) {
    std::string record(size, '\0');
    for (char& c : record) c = static_cast<char>(random());
    put_wandb_record(bytes, 0, record);
    ends.push_back(std::ssize(bytes));
  }
  EXPECT_EQ(wandb_record_ends(bytes, "f"), ends);
}

TEST(WandbFile, AnyChangeIsNoticed) {
  std::string good = wandb_file_begin();
  for (const size_t size : {40, 0, 33'000, 100}) put_wandb_record(good, 0, std::string(size, 'x'));
  const auto whole = wandb_record_ends(good, "f");
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    const size_t at = random() % bytes.size();
    if (i % 3 == 0)
      bytes.resize(at);
    else
      bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + random() % 255));
    std::vector<int64_t> found;
    try {
      found = wandb_record_ends(bytes, "f");
    } catch (const Error& e) {
      ASSERT_EQ(e.fault(), Fault::file);
      ASSERT_NE(std::string(e.what()).find("expected a record of W&B"), std::string::npos);
      continue;
    }
    // Cut between two records, or a zero that fills a block.
    const bool is_cut = bytes.size() < good.size();
    ASSERT_TRUE(is_cut ? found.size() < whole.size() : found == whole)
        << "seed " << seed << ", byte " << at;
  }
}

TEST(WandbIndex, IsReadUpToAStep) {
  const TempFolder folder;
  const auto file = folder.path() / "index";
  write_text(file, "-1 100 1700000000.250\n0 150\n2 200\n5 250\n7 3");
  const WandbIndex index = read_wandb_index(file, 4);
  EXPECT_EQ(index.text, "-1 100 1700000000.250\n0 150\n2 200\n");
  EXPECT_EQ(index.last_step, 2);
  EXPECT_EQ(index.end, 200);
  EXPECT_EQ(index.start, 1700000000.25);
  EXPECT_EQ(read_wandb_index(file, 100).last_step, 5) << "the last line is cut";
}

TEST(WandbIndex, RefusesWhatIsNone) {
  const TempFolder folder;
  const auto file = folder.path() / "index";
  for (const char* text :
       {"", "\n", "x", "-1 100\n", "0 100 1.0\n", "-1 100 nan\n", "-1 100 -5\n", "-1 100 1e300\n",
        "-1 100 1.0\n1 90\n", "-1 100 1.0\n1 150 \n", "-1 100 1.0\n1 x\n", "-1 100 1.0\n1\n",
        "-1 100 1.0\n3 150\n2 200\n", "-1 100 1.0\n99999999999999999999 150\n"}) {
    write_text(file, text);
    EXPECT_NE(message_of(Fault::file, [&] { read_wandb_index(file, 1000); }), "") << text;
  }
}

}  // namespace
}  // namespace capstan
