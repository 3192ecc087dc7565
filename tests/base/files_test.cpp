#include "base/files.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// Makes writes beyond `bytes` fail, as a full disk or a quota does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

std::string write_failure(const fs::path& path, size_t bytes, int64_t expected) {
  std::string message;
  const FileSizeLimit limit(1000);
  try {
    NewFile file(path, expected);
    const std::string data(bytes, 'x');
    file.append(std::as_bytes(std::span(data)));
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::file);
    message = e.what();
  }
  return message;
}

TEST(NewFile, AFailedWriteNamesFileCauseAndSpaceAndKeepsTheOldFile) {
  TempFolder folder;
  const fs::path path = folder / "a";
  write_text(path, "old");
  // 0: nothing is reserved, so that the write itself fails.
  for (const int64_t expected : {2048, 0}) {
    const std::string message = write_failure(path, 2048, expected);
    EXPECT_TRUE(message.starts_with(path.string() + ": cannot ")) << message;
    EXPECT_NE(message.find("File too large; it needs " +
                           std::string(expected > 0 ? "2.00 KiB" : "0 B") + ", but "),
              std::string::npos)
        << message;
    EXPECT_EQ(read_text(path), "old");
    EXPECT_FALSE(fs::exists(folder / "a.part"));
  }
}

TEST(NewFile, InAFolderThatIsNotThere) {
  TempFolder folder;
  const fs::path path = folder / "none" / "a";
  const auto message = message_of(Fault::file, [&] { write_text(path, "x"); });
  EXPECT_TRUE(message.starts_with(path.string() + ": cannot create the file: No such file"))
      << message;
}

TEST(NewFile, ReplacesAFileOfItsName) {
  TempFolder folder;
  write_text(folder / "a", "old and longer");
  write_text(folder / "a", "new");
  EXPECT_EQ(read_text(folder / "a"), "new");
}

TEST(NewFile, TakesTheSumWhileItWrites) {
  TempFolder folder;
  NewFile file(folder / "a", 0);
  std::string all;
  for (const char* piece : {"one", "", "two", "three"}) {
    file.append(std::as_bytes(std::span(std::string_view(piece))));
    all += piece;
  }
  const FileSum sum = file.commit();
  EXPECT_EQ(sum, (FileSum{11, sha256_of(all)}));
  EXPECT_EQ(sum.sha256, sha256_of_file(folder / "a"));
  EXPECT_EQ(write_text(folder / "b", all), sum);
}

// In a folder that others may write to, too.
TEST(NewFile, ALinkInThePlaceOfItsPartIsReplacedAndNotFollowed) {
  TempFolder folder;
  write_text(folder / "victim", "precious");
  fs::create_symlink("victim", folder / "a.part");
  write_text(folder / "a", "new");
  EXPECT_EQ(read_text(folder / "victim"), "precious");
  EXPECT_EQ(read_text(folder / "a"), "new");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "a")));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / "a.part")));
}

TEST(NewFile, APartOfADeadProcessIsReplacedAndOneOfALivingRefused) {
  TempFolder folder;
  folder.write("a.part", "left by a kill");
  fs::create_hard_link(folder / "a.part", folder / "kept");
  write_text(folder / "a", "new");
  EXPECT_EQ(read_text(folder / "a"), "new");
  EXPECT_EQ(read_text(folder / "kept"), "left by a kill") << "removed, not written to";
  {
    NewFile writing(folder / "b", 0);
    const auto message = message_of(Fault::file, [&] { write_text(folder / "b", "x"); });
    EXPECT_TRUE(message.starts_with((folder / "b.part").string() + ": another process is writing"))
        << message;
    writing.commit();
  }
  EXPECT_EQ(read_text(folder / "b"), "");
  fs::create_directory(folder / "c.part");
  EXPECT_NE(message_of(Fault::file, [&] { write_text(folder / "c", "x"); }).find("is in the way"),
            std::string::npos);
}

TEST(NewFile, HasThePermissionsThatItIsGivenLessTheUmask) {
  TempFolder folder;
  const mode_t before = ::umask(022);
  write_text(folder / "usual", "x");
  write_text(folder / "private", "x", 0600);
  write_text(folder / "open", "x", 0666);
  ::umask(before);
  const auto mode = [&](const char* name) {
    return static_cast<int>(fs::status(folder / name).permissions());
  };
  EXPECT_EQ(mode("usual"), 0644);
  EXPECT_EQ(mode("private"), 0600);
  EXPECT_EQ(mode("open"), 0644);
}

TEST(RequireFileSize, NamesTheLimitOfTheShell) {
  const FileSizeLimit limit(1000);
  EXPECT_NO_THROW(require_file_size("a", 1000));
  EXPECT_EQ(message_of(Fault::file, [] { require_file_size("out/a", 1001); }),
            "out/a: cannot write the file: File too large; it needs 1001 B, but files are limited "
            "to 1000 B (ulimit -f); raise the limit");
}

TEST(ReadText, RefusesAFileThatIsTooLarge) {
  TempFolder folder;
  write_text(folder / "a", std::string(11, 'x'));
  EXPECT_EQ(read_text(folder / "a", 11).size(), 11u);
  EXPECT_NE(message_of(Fault::file, [&] { read_text(folder / "a", 10); })
                .find("expected at most 10 B, found 11 B"),
            std::string::npos);
}

TEST(NewFolder, AppearsWhole) {
  TempFolder folder;
  const fs::path out = folder / "deep" / "out";
  {
    NewFolder abandoned(out);
    write_text(abandoned.path() / "config.json", "{}");
  }
  EXPECT_TRUE(fs::is_empty(out.parent_path())) << "nothing of it is left";
  NewFolder made(fs::path(out) += "/");  // a slash at the end is no other name
  write_text(made.path() / "config.json", "{}");
  EXPECT_FALSE(fs::exists(out));
  made.commit();
  EXPECT_TRUE(fs::exists(out / "config.json"));
  EXPECT_FALSE(fs::exists(folder / "deep" / ".out.capstan-part"));
}

TEST(NewFolder, ReplacesACheckpointOnceTheNewOneIsComplete) {
  TempFolder folder;
  const fs::path out = folder / "out";
  fs::create_directory(out);
  write_text(out / "config.json", "old");
  fs::create_directory(folder / ".out.capstan-part");  // what a crash left
  write_text(folder / ".out.capstan-part" / "rest", "");
  NewFolder made(out);
  write_text(made.path() / "config.json", "new");
  EXPECT_EQ(read_text(out / "config.json"), "old");
  made.commit();
  EXPECT_EQ(read_text(out / "config.json"), "new");
  EXPECT_FALSE(fs::exists(out / "rest"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing else is left";
}

TEST(NewFolder, LeavesLinksInTheirPlaces) {
  TempFolder folder;
  fs::create_directory(folder / "disk");
  for (const char* target : {"disk/there", "disk/not"}) {
    const fs::path link = folder.path() / fs::path(target).filename();
    fs::create_directory_symlink(folder / target, link);
    if (link.filename() == "there") fs::create_directory(folder / target);
    NewFolder made(link);
    write_text(made.path() / "config.json", "new");
    made.commit();
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(read_text(folder / target / "config.json"), "new");
  }
  fs::create_directory_symlink(folder / "disk/there/.", folder / "dotted");
  NewFolder made(folder / "dotted");
  write_text(made.path() / "config.json", "newer");
  made.commit();
  EXPECT_EQ(read_text(folder / "disk/there" / "config.json"), "newer");
  fs::create_directory_symlink(folder / "loop", folder / "loop");
  EXPECT_NE(message_of(Fault::file, [&] { NewFolder never(folder / "loop"); })
                .find("is a link to itself"),
            std::string::npos);
}

TEST(NewFolder, DoesNotDeleteWhatIsNoCheckpoint) {
  TempFolder folder;
  const fs::path out = folder / "out";
  fs::create_directory(out);
  EXPECT_NO_THROW(NewFolder made(out)) << "empty";
  write_text(out / "thesis.tex", "years of work");
  EXPECT_NE(message_of(Fault::file, [&] { NewFolder made(out); }).find("choose another folder"),
            std::string::npos);
  EXPECT_EQ(read_text(out / "thesis.tex"), "years of work");
  EXPECT_NE(message_of(Fault::file, [&] { NewFolder made(out / "thesis.tex"); })
                .find("expected a folder or nothing, found a file"),
            std::string::npos);
}

TEST(RequireSpace, NamesTheFolderAndBothSizes) {
  TempFolder folder;
  EXPECT_NO_THROW(require_space(folder.path(), 1));
  const auto message =
      message_of(Fault::file, [&] { require_space(folder.path(), int64_t{1} << 60); });
  EXPECT_TRUE(message.starts_with(folder.path().string() + ": needs 1024 PiB, but ")) << message;
}

TEST(ReserveSpace, GivesItBack) {
  TempFolder folder;
  EXPECT_NO_THROW(reserve_space(folder.path(), 1 << 20));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(NewFolder, LeavesNeighboursOfSimilarNamesAlone) {
  TempFolder folder;
  for (const char* name : {"out.old", "out.part"}) {
    fs::create_directory(folder / name);
    write_text(folder / name / "config.json", "kept");
  }
  for (int i = 0; i < 2; ++i) {  // the second time it replaces
    NewFolder made(folder / "out");
    write_text(made.path() / "config.json", "new");
    made.commit();
  }
  EXPECT_EQ(read_text(folder / "out.old" / "config.json"), "kept");
  EXPECT_EQ(read_text(folder / "out.part" / "config.json"), "kept");
}

TEST(NewFolder, TwoDoNotWriteTheSameFolder) {
  TempFolder folder;
  {
    const NewFolder first(folder / "out");
    const auto message = message_of(Fault::file, [&] { NewFolder second(folder / "out"); });
    EXPECT_NE(message.find("out: another process is writing this folder (as "), std::string::npos)
        << message;
    EXPECT_TRUE(fs::exists(first.path())) << "it is not taken for a leftover";
  }
  EXPECT_NO_THROW(NewFolder again(folder / "out"));
}

TEST(RemoveLeftovers, TakesWhatDeadProcessesLeftAndNothingElse) {
  TempFolder folder;
  const NewFolder alive(folder / "alive");
  for (const char* name : {".dead.capstan-part", ".gone.capstan-old", ".here.capstan-old", "here",
                           "other", ".hidden"}) {
    fs::create_directory(folder / name);
    write_text(folder / name / "file", name);
  }
  write_text(folder / ".file.capstan-part", "not a folder of ours");
  remove_leftovers(folder.path());
  EXPECT_TRUE(fs::exists(alive.path()));
  EXPECT_FALSE(fs::exists(folder / ".dead.capstan-part"));
  EXPECT_FALSE(fs::exists(folder / ".here.capstan-old"));
  EXPECT_EQ(read_text(folder / "here" / "file"), "here") << "the newer one stays";
  EXPECT_EQ(read_text(folder / "gone" / "file"), ".gone.capstan-old") << "it has its name back";
  for (const char* name : {"other", ".hidden", ".file.capstan-part"})
    EXPECT_TRUE(fs::exists(folder / name)) << name;
  EXPECT_NO_THROW(remove_leftovers(folder / "none"));
}

TEST(FolderLock, IsHeldByOneAtATime) {
  TempFolder folder;
  std::optional<FolderLock> first(folder / "a" / "b");
  EXPECT_TRUE(fs::exists(folder / "a" / "b"));
  const std::string message =
      message_of(Fault::file, [&] { FolderLock second(folder / "a" / "b"); });
  EXPECT_NE(message.find("a/b: another process is using this folder"), std::string::npos)
      << message;
  write_text(folder / "a" / "b" / "c", "");
  first.reset();
  EXPECT_NO_THROW(FolderLock(folder / "a" / "b"));
  EXPECT_TRUE(fs::exists(folder / "a" / "b" / "c"));
}

TEST(FolderLock, LeavesNoFolderThatIsNotUsed) {
  TempFolder folder;
  {
    const FolderLock lock(folder / "a" / "b");
    EXPECT_TRUE(fs::exists(folder / "a" / "b"));
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
  fs::create_directory(folder / "a");
  EXPECT_NO_THROW(FolderLock(folder / "a"));
  EXPECT_TRUE(fs::is_empty(folder / "a")) << "it was there before";
}

TEST(FolderLock, LeavesItToOthersToTellOfAFolderThatCannotBe) {
  TempFolder folder;
  write_text(folder / "file", "");
  EXPECT_NO_THROW(FolderLock(folder / "file" / "b"));
}

TEST(RemoveFolder, LeavesNothing) {
  TempFolder folder;
  fs::create_directories(folder / "a" / "b");
  write_text(folder / "a" / "b" / "c", "");
  remove_folder(folder / "a");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RequireWritable, MakesTheFolderAndLeavesNothingInIt) {
  TempFolder folder;
  require_writable(folder / "a");
  EXPECT_TRUE(fs::is_empty(folder / "a"));
  write_text(folder / "file", "");
  EXPECT_NE(message_of(Fault::file, [&] { require_writable(folder / "file" / "b"); })
                .find("file/b: cannot create the folder: Not a directory"),
            std::string::npos);
}

TEST(RequireWritableFile, MakesItsFolderAndRefusesTheNameOfAFolder) {
  TempFolder folder;
  require_writable_file(folder / "a" / "page.html");
  EXPECT_TRUE(fs::is_empty(folder / "a"));
  for (const fs::path& name : {folder / "a", folder / "b" / ""})
    EXPECT_EQ(message_of(Fault::file, [&] { require_writable_file(name); }),
              name.string() + ": expected the name of a file, found a folder; name a file in it");
}

// A small file system of its own, in a process of its own that may mount one.
TEST(NewFile, AFullInodeTableIsNotALackOfBytes) {
  const TempFolder folder;
  const fs::path told = folder / "told", disk = folder / "disk";
  fs::create_directory(disk);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0) ::_exit(77);
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "nr_inodes=4") != 0) ::_exit(77);
    std::string messages;
    const auto tell = [&](const auto& body) {
      try {
        body();
      } catch (const Error& e) {
        messages += std::string(e.what()) + "\n";
      }
    };
    tell([&] {
      for (const char* name : {"a", "b", "c", "d"}) write_text(disk / name, "x");
    });
    tell([&] { NewFolder(disk / "model"); });
    tell([&] { require_writable(disk / "out"); });
    tell([&] { require_space(disk, 1); });
    write_text(told, messages);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not mount a file system";
  const std::string messages = read_text(told);
  size_t found = 0;
  for (size_t at = 0; (at = messages.find("its inode table is full", at)) != std::string::npos;
       ++at)
    ++found;
  EXPECT_EQ(found, 4U) << messages;
  EXPECT_EQ(messages.find("are free"), std::string::npos) << messages;
}

}  // namespace
}  // namespace capstan
