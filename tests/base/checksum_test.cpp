#include "base/checksum.h"

#include <gtest/gtest.h>

#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

TEST(Checksum, IsTheStandardsSha256) {
  // FIPS 180-2, appendix B.
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Checksum, PiecesCountAsOne) {
  Sha256 sum;
  sum.update("a");
  sum.update("");
  sum.update("bc");
  EXPECT_EQ(sum.hex(), sha256_of("abc"));
}

TEST(Checksum, OfAFileLongerThanABlock) {
  const TempFolder folder;
  const std::string text(3'000'001, 'x');
  EXPECT_EQ(sha256_of_file(folder.write("x", text)), sha256_of(text));
  EXPECT_NE(message_of(Fault::file, [&] { sha256_of_file(folder.path() / "none"); }).find("none"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
