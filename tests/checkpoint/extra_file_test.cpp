#include "checkpoint/extra_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/convert_model.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_model.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

int mode_of(const fs::path& path) {
  return static_cast<int>(fs::status(path).permissions());
}

TEST(ExtraFile, HasContentsAndPermissionsOfItsSource) {
  const TempFolder folder;
  fs::create_directory(folder / "model");
  folder.write("model/tokenizer.json", "{}");
  ::chmod((folder / "model/tokenizer.json").c_str(), 0600);
  const ExtraFile file = read_extra(folder / "model", "tokenizer.json");
  EXPECT_EQ(file, (ExtraFile{"tokenizer.json", "{}", 0600}));
  fs::remove_all(folder / "model");
  write_extra(folder / "out", file);
  EXPECT_EQ(read_text(folder / "out/tokenizer.json"), "{}");
  EXPECT_EQ(mode_of(folder / "out/tokenizer.json"), 0600);
}

TEST(ExtraFile, ALinkThatLeavesTheFolderIsRefused) {
  const TempFolder folder;
  fs::create_directories(folder / "model/deep");
  folder.write("secret", "a key");
  folder.write("model/real", "text");
  const auto refused = [&](const char* name) {
    const std::string message =
        message_of(Fault::file, [&] { read_extra(folder / "model", name); });
    EXPECT_TRUE(message.starts_with((folder / "model" / name).string() +
                                    ": expected a file of this folder, found a link to "))
        << message;
  };
  fs::create_symlink("../secret", folder / "model/LICENSE");
  refused("LICENSE");
  fs::create_symlink(folder / "secret", folder / "model/README.md");
  refused("README.md");
  fs::create_symlink("../../secret", folder / "model/deep/up");
  fs::create_symlink("deep/up", folder / "model/NOTICE");
  refused("NOTICE");
  fs::create_symlink("real", folder / "model/tokenizer.json");
  EXPECT_EQ(read_extra(folder / "model", "tokenizer.json").contents, "text");
  // The folder itself may be a link.
  fs::create_symlink("model", folder / "name");
  EXPECT_EQ(read_extra(folder / "name", "real").contents, "text");
}

TEST(ExtraFile, LinksOfTheHubsCacheAreItsFiles) {
  const TempFolder folder;
  const fs::path hub = folder / "models--a--b", revision = hub / "snapshots/0123abcd";
  fs::create_directories(revision);
  fs::create_directory(hub / "blobs");
  folder.write("models--a--b/blobs/5f3a", "text");
  folder.write("models--a--b/other", "not a blob");
  fs::create_symlink("../../blobs/5f3a", revision / "tokenizer.json");
  fs::create_symlink("../../other", revision / "README.md");
  EXPECT_EQ(read_extra(revision, "tokenizer.json").contents, "text");
  EXPECT_THROW(read_extra(revision, "README.md"), Error);
  // Blobs are not the files of any other folder.
  fs::create_directories(hub / "elsewhere/0123abcd");
  fs::create_symlink("../../blobs/5f3a", hub / "elsewhere/0123abcd/tokenizer.json");
  EXPECT_THROW(read_extra(hub / "elsewhere/0123abcd", "tokenizer.json"), Error);
}

TEST(ExtraFile, APipeIsRefusedAndNotWaitedFor) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  ::alarm(10);
  EXPECT_NE(message_of(Fault::file, [&] { read_extra(folder.path(), "pipe"); })
                .find("expected a file, found a pipe"),
            std::string::npos);
  ::alarm(0);
}

TEST(ConvertCopies, ComeFromTheFolderAloneWithItsPermissions) {
  const TempFolder folder;
  Model model(small("LlamaForCausalLM"));
  save_model(model.queue, model.params, folder / "model");
  fs::remove(folder / "model/MANIFEST.json");
  folder.write("model/tokenizer.json", "{}");
  for (const char* name : {"tokenizer.json", "config.json", "model.safetensors"})
    ::chmod((folder / "model" / name).c_str(), 0600);
  convert_model(folder / "model", folder / "out");
  for (const char* name : {"tokenizer.json", "config.json", "model.safetensors"})
    EXPECT_EQ(mode_of(folder / "out" / name), 0600) << name;
  folder.write("secret", "a key");
  fs::create_symlink("../secret", folder / "model/LICENSE");
  EXPECT_NE(message_of(Fault::file, [&] { convert_model(folder / "model", folder / "new"); })
                .find("LICENSE: expected a file of this folder"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "new"));
}

}  // namespace
}  // namespace capstan
