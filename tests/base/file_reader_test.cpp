#include "base/file_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/files.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string refusal(const fs::path& path) {
  ::alarm(10);  // where it waits for a writer
  const std::string message = message_of(Fault::file, [&] { FileReader file(path); });
  ::alarm(0);
  EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
  return message.substr(path.string().size() + 2);
}

TEST(FileReader, RefusesWhatIsNoFileAndNeverWaits) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folder / "pipe"), "expected a file, found a pipe, which can only be read once");
  EXPECT_EQ(refusal(folder.path()), "expected a file, found a folder");
  EXPECT_EQ(refusal("/dev/null"), "expected a file, found a device or socket");
  EXPECT_EQ(refusal(folder / "none"), "cannot open: No such file or directory");
  ::alarm(10);
  message_of(Fault::file, [&] { read_text(folder / "pipe"); });
  message_of(Fault::file, [&] { sha256_of_file(folder / "pipe"); });
  message_of(Fault::file, [&] { FileBytes bytes(folder / "pipe"); });
  ::alarm(0);
}

TEST(FileReader, FollowsALinkOnlyWhereItMay) {
  TempFolder folder;
  folder.write("a", "text");
  fs::create_symlink("a", folder / "link");
  EXPECT_EQ(FileReader(folder / "link").size(), 4);
  EXPECT_NE(
      message_of(Fault::file, [&] { FileReader file(folder / "link", FileReader::Links::refuse); })
          .find("cannot open"),
      std::string::npos);
}

TEST(FileReader, ReadsAnyPartOnOneThreadAndOnAll) {
  TempFolder folder;
  std::string text(5'000'003, 'x');
  for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>(i);
  folder.write("a", text);
  const FileReader file(folder / "a");
  EXPECT_EQ(file.size(), std::ssize(text));
  for (const int64_t at : {int64_t{0}, int64_t{1}, int64_t{4'999'999}}) {
    std::string one(text.size() - static_cast<size_t>(at), ' '), all = one;
    file.read(at, std::as_writable_bytes(std::span(one)));
    file.read_parallel(at, std::as_writable_bytes(std::span(all)));
    EXPECT_TRUE(text.ends_with(one)) << at;
    EXPECT_TRUE(all == one) << at;
  }
}

// A mapping would end the process by SIGBUS.
TEST(FileReader, AFileThatIsCutShortMeanwhileIsAnErrorWithItsPlace) {
  TempFolder folder;
  folder.write("a", std::string(3'000'000, 'x'));
  const FileReader file(folder / "a");
  fs::resize_file(folder / "a", 1'500'000);
  std::vector<std::byte> all(3'000'000);
  const auto said = [&](const auto& read) {
    EXPECT_EQ(message_of(Fault::file, read),
              (folder / "a").string() +
                  ": expected 3000000 bytes, found the end at byte 1500000: the file was truncated "
                  "while it was read");
  };
  said([&] { file.read(0, all); });
  EXPECT_THROW(file.read_parallel(0, all), Error);
}

}  // namespace
}  // namespace capstan
