#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"

// Files that are whole or not there. Every failure is Fault::file and names the file and the cause.
namespace capstan {

// The text of a small file.
std::string read_text(const std::filesystem::path& path, int64_t max_bytes = 64 << 20);

// What a file holds: its size, and the 64 hexadecimal digits of its SHA-256.
struct FileSum {
  int64_t bytes = 0;
  std::string sha256;

  bool operator==(const FileSum&) const = default;
};

inline constexpr mode_t kUsualMode = 0666;

// A file that appears under its name once it is complete. Until then it is "NAME.part" in the same
// folder, which is removed if commit is not reached. It is locked (flock) meanwhile: what a dead
// process left is replaced, a link of that name, too, and what another writes is refused.
class NewFile {
 public:
  // Reserves the bytes at once where the file system can, so that a full disk is known at the
  // start. `mode` is the permissions that it gets, less the umask.
  NewFile(std::filesystem::path path, int64_t expected_bytes, mode_t mode = kUsualMode);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void append(std::span<const std::byte> bytes);
  // Brings the bytes to the disk and gives the file its name, replacing one that had it. The sum
  // was taken while they were written.
  FileSum commit();

  int64_t written() const { return written_; }

 private:
  [[noreturn]] void fail_with_errno(const char* doing) const;

  std::filesystem::path path_, part_;
  int64_t expected_;
  int64_t written_ = 0;
  int fd_ = -1;
  bool done_ = false;
  Sha256 sum_;
};

FileSum write_text(const std::filesystem::path& path, std::string_view text,
                   mode_t mode = kUsualMode);

// A folder that appears under its name, or where a link of that name leads, once it is complete. It
// grows as ".NAME.capstan-part" beside it, which is removed if commit is not reached. It is locked
// (flock) meanwhile, so that nobody takes it for what a dead process left behind.
class NewFolder {
 public:
  // Refuses a name that a file has, or a folder with something in it that is no checkpoint (that
  // has neither config.json nor adapter_config.json): commit would delete it. Refuses, too, while
  // another process writes a folder of this name.
  explicit NewFolder(const std::filesystem::path& path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // Where to write meanwhile.
  const std::filesystem::path& path() const { return part_; }
  // Replaces a folder of the name, which is deleted only once the new one is in its place.
  void commit();

 private:
  std::filesystem::path path_, part_;
  int lock_ = -1;
  bool done_ = false;
};

// A folder that one process uses at a time, for as long as this lives: a lock (flock) on a file in
// it, .capstan-lock, which ends with the process, however that ends. Where the file system has no
// locks, there is none.
class FolderLock {
 public:
  // Makes the folder if need be and possible; what it made and is still empty at the end goes
  // again. Throws where another holds it.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // the folder, then those above it
  int fd_ = -1;
};

// Where a replaced folder of that name is for the moment between two renames, on file systems that
// cannot exchange two names in one. A crash may leave it there, and nothing under the name.
std::filesystem::path replaced_name(const std::filesystem::path& path);

// Removes what NewFolders of dead processes left in the folder, and nothing that is locked. A
// replaced folder goes back to its name where nothing has it. What cannot be removed is warned of.
void remove_leftovers(const std::filesystem::path& folder);

// Deletes a folder so that no moment leaves a half of it under its name. A failure is warned of.
void remove_folder(const std::filesystem::path& path);

// Whether it is the folder itself or lies somewhere in it, by whatever names. False where either is
// not there.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

// The last name of a folder: "model" of "/models/model/" and of "." in it, too.
std::string folder_name(const std::filesystem::path& folder);

// Where files lie that can be made again: $CAPSTAN_CACHE, else $XDG_CACHE_HOME/capstan/KIND, else
// ~/.cache/capstan/KIND; empty where none of the variables is set.
std::filesystem::path cache_folder(std::string_view kind);

// Throws unless a file can be written in the folder, which is made if need be: writes a few bytes,
// syncs and removes them.
void require_writable(const std::filesystem::path& folder);

// Throws unless the file system that holds `folder` has that much space left.
void require_space(const std::filesystem::path& folder, int64_t bytes);

// Throws where one file may not have that many bytes (`ulimit -f`).
void require_file_size(const std::filesystem::path& path, int64_t bytes);

// Makes what was created and renamed in the folder last. File systems that cannot do it (some
// network ones) need not.
void sync_folder(const std::filesystem::path& folder);

// Takes that much space in the folder and gives it back: throws what only taking it tells, such as
// a quota. Where the file system cannot reserve, it does nothing.
void reserve_space(const std::filesystem::path& folder, int64_t bytes);

}  // namespace capstan
