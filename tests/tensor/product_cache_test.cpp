#include "tensor/product_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/files.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

ProductKey key(int64_t n) {
  return {{n, 2 * n, 3, 4, 5, 6, 7, 8}};
}

ProductAlgorithm algorithm(int n) {
  ProductAlgorithm a{};
  a.front() = static_cast<std::byte>(n);
  a.back() = static_cast<std::byte>(n + 1);
  return a;
}

TEST(ProductCache, TheNextRunFindsWhatThisOneUses) {
  const TempFolder folder;
  {
    ProductCache cache(folder / "deep/er", "a GPU");
    EXPECT_EQ(cache.find(key(1)), nullptr);
    ASSERT_TRUE(cache.writable());
    for (const int n : {3, 1, 2}) EXPECT_EQ(cache.keep(key(n), algorithm(n)), algorithm(n));
    ASSERT_NE(cache.find(key(2)), nullptr);
    EXPECT_EQ(*cache.find(key(2)), algorithm(2));
  }
  const ProductCache next(folder / "deep/er", "a GPU");
  for (const int n : {1, 2, 3}) {
    ASSERT_NE(next.find(key(n)), nullptr);
    EXPECT_EQ(*next.find(key(n)), algorithm(n));
  }
  EXPECT_EQ(next.find(key(4)), nullptr);
}

TEST(ProductCache, ReadsNothingOfAnotherMachine) {
  const TempFolder folder;
  ProductCache(folder.path(), "a GPU").keep(key(1), algorithm(1));
  EXPECT_EQ(ProductCache(folder.path(), "another GPU").find(key(1)), nullptr);
}

TEST(ProductCache, TheFirstOfTwoProcessesDecidesForBoth) {
  const TempFolder folder;
  ProductCache one(folder.path(), "a GPU"), other(folder.path(), "a GPU");
  EXPECT_EQ(one.keep(key(1), algorithm(10)), algorithm(10));
  EXPECT_EQ(other.keep(key(1), algorithm(20)), algorithm(10));
  EXPECT_EQ(*other.find(key(1)), algorithm(10));
  EXPECT_EQ(other.keep(key(2), algorithm(2)), algorithm(2));
  const ProductCache next(folder.path(), "a GPU");
  EXPECT_EQ(*next.find(key(1)), algorithm(10));
  EXPECT_EQ(*next.find(key(2)), algorithm(2));
}

TEST(ProductCache, ADamagedFileIsIgnoredAndReplaced) {
  const TempFolder folder;
  fs::path path;
  {
    ProductCache cache(folder.path(), "a GPU");
    cache.keep(key(1), algorithm(1));
    path = cache.path();
  }
  const std::string good = read_text(path);
  ASSERT_EQ(good.size(), 160u + 128u);
  const auto reads = [&](const std::string& bytes) {
    folder.write(path.filename().string(), bytes);
    return ProductCache(folder.path(), "a GPU").find(key(1)) != nullptr;
  };
  EXPECT_TRUE(reads(good));
  for (size_t i = 0; i < good.size(); i += 5) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(reads(bad)) << "byte " << i;
  }
  for (const size_t length : {0u, 7u, 159u, 160u, 287u})
    EXPECT_FALSE(reads(good.substr(0, length))) << length << " bytes";
  EXPECT_FALSE(reads(good + "more"));

  folder.write(path.filename().string(), "rubbish");
  ProductCache cache(folder.path(), "a GPU");
  EXPECT_EQ(cache.keep(key(1), algorithm(5)), algorithm(5));
  EXPECT_EQ(*ProductCache(folder.path(), "a GPU").find(key(1)), algorithm(5));
}

TEST(ProductCache, AFolderThatCannotBeIsNoError) {
  const TempFolder folder;
  folder.write("file", "");
  for (const fs::path& nowhere : {folder / "file", fs::path()}) {
    ProductCache cache(nowhere, "a GPU");
    EXPECT_FALSE(cache.writable());
    EXPECT_EQ(cache.find(key(1)), nullptr);
    message_of(Fault::file, [&] { cache.keep(key(1), algorithm(1)); });
    EXPECT_EQ(cache.find(key(1)), nullptr) << "nothing that is not on disk is used";
  }
}

// As a process that was stopped at the wrong moment does.
TEST(ProductCache, ALockThatIsNeverGivenBackIsToldAndNotWaitedFor) {
  const TempFolder folder;
  ProductCache cache(folder.path(), "a GPU");
  cache.keep(key(1), algorithm(1));
  fs::path file;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    if (entry.path().extension() == ".lock") file = entry.path();
  const int held = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_NE(message_of(Fault::file, [&] { cache.keep(key(2), algorithm(2)); })
                .find(".lock: another process has held this lock for"),
            std::string::npos);
  ::close(held);
  EXPECT_EQ(cache.keep(key(2), algorithm(2)), algorithm(2));
}

}  // namespace
}  // namespace capstan
