#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "base/files.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr OutputKind kKind = {"a page", "<page by=\"us\""};

TEST(OutputFile, ReplacesOnlyItsOwnKind) {
  const TempFolder folder;
  const auto refusal = [&](const char* name) {
    return message_of(Fault::usage, [&] { require_output("--html", folder / name, kKind); });
  };
  EXPECT_NO_THROW(require_output("--html", folder / "new", kKind));
  EXPECT_NO_THROW(require_output("--html", folder / "in/a/folder", kKind));
  folder.write("empty", "");
  folder.write("ours", "<page by=\"us\"> and the rest");
  folder.write("indented", "\n <page\n  by=\"us\">");
  for (const char* name : {"empty", "ours", "indented"})
    EXPECT_NO_THROW(require_output("--html", folder / name, kKind)) << name;
  folder.write("recipe.yaml", "seed: 1\n");
  folder.write("cut", "<page by");
  folder.write("theirs", "<page by=\"them\">");
  for (const char* name : {"recipe.yaml", "cut", "theirs"})
    EXPECT_EQ(refusal(name), "--html: " + (folder / name).string() +
                                 " exists and is not a page that Capstan wrote, so it is not "
                                 "replaced; choose another name, or move it away");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal("pipe"), "") << "and does not wait for somebody to write there";
  fs::create_symlink("recipe.yaml", folder / "link");
  EXPECT_NE(refusal("link"), "");
  EXPECT_EQ(read_text(folder / "recipe.yaml"), "seed: 1\n");
  EXPECT_NE(message_of(Fault::file, [&] { require_output("--html", folder.path(), kKind); })
                .find("found a folder"),
            std::string::npos);
}

TEST(OutputFile, WhatIsMovedKeepsItsPlace) {
  const TempFolder folder;
  fs::create_directories(folder / "final");
  fs::create_directories(folder / "previous-1");
  folder.write("final/a", "1");
  folder.write("b", "2");
  const std::array<fs::path, 2> some = {folder / "final/a", folder / "b"};
  EXPECT_EQ(move_to_previous(folder.path(), some), folder / "previous-2");
  EXPECT_EQ(read_text(folder / "previous-2/final/a"), "1");
  EXPECT_EQ(read_text(folder / "previous-2/b"), "2");
  EXPECT_FALSE(fs::exists(folder / "b"));
}

}  // namespace
}  // namespace capstan
