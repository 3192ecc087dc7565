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

// Files that are complete or absent. Every failure is Fault::file and names the file and the cause.
namespace capstan {

// The text of a small file.
std::string read_text(const std::filesystem::path& path, int64_t max_bytes = 64 << 20);

// The size of a file, and its SHA-256 in 64 hexadecimal digits.
struct FileSum {
  int64_t bytes = 0;
  std::string sha256;

  bool operator==(const FileSum&) const = default;
};

inline constexpr mode_t kUsualMode = 0666;

// A file that appears under its name when it is complete. Until then it is "NAME.part" in the same
// folder, which is removed without commit. It is locked (flock) meanwhile: a leftover of a dead
// process, or a link of that name, is replaced; a file that another process is writing is refused.
class NewFile {
 public:
  // Reserves the bytes immediately if the file system supports it, so that a full disk is detected
  // at the start. `mode` is its permissions, without the umask.
  NewFile(std::filesystem::path path, int64_t expected_bytes, mode_t mode = kUsualMode);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void append(std::span<const std::byte> bytes);
  // Flushes the bytes to disk and renames the file, replacing an existing one. The checksum was
  // computed during the writes.
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

// A folder that appears under its name, or at the target of a link of that name, when it is
// complete. It grows as ".NAME.capstan-part" next to it, which is removed without commit. It is
// locked (flock) meanwhile, so that no process takes it for a leftover.
class NewFolder {
 public:
  // Refuses a name that belongs to a file, or to a folder with contents that is not a checkpoint
  // (has neither config.json nor adapter_config.json): commit would delete it. Also refuses while
  // another process writes a folder of this name.
  explicit NewFolder(const std::filesystem::path& path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // The folder to write to meanwhile.
  const std::filesystem::path& path() const { return part_; }
  // Replaces an existing folder of the name, which is deleted only when the new one is in place.
  void commit();

 private:
  std::filesystem::path path_, part_;
  int lock_ = -1;
  bool done_ = false;
};

// Exclusive use of a folder by one process while this object lives: a lock (flock) on the file
// .capstan-lock in it, which ends with the process in any case. Does nothing on file systems
// without locks.
class FolderLock {
 public:
  // Creates the folder if needed and possible; removes the folders it created if they are still
  // empty at the end. Throws if another process holds the lock.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // the folder, then its parents
  int fd_ = -1;
};

// The temporary name of a replaced folder between two renames, on file systems that cannot exchange
// two names atomically. A crash may leave the folder there, and nothing under its own name.
std::filesystem::path replaced_name(const std::filesystem::path& path);

// Removes what NewFolders of dead processes left in the folder, but nothing that is locked. Renames
// a replaced folder back if its name is free. Warns about what cannot be removed.
void remove_leftovers(const std::filesystem::path& folder);

// Deletes a folder without ever leaving half of it under its name. Warns on failure.
void remove_folder(const std::filesystem::path& path);

// Whether it is the folder itself or anywhere inside it, under any name. False if either does not
// exist.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

// The last name of a folder: "model" for "/models/model/", and for "." inside it.
std::string folder_name(const std::filesystem::path& folder);

// The cache folder: $CAPSTAN_CACHE, else $XDG_CACHE_HOME/capstan/KIND, else ~/.cache/capstan/KIND;
// empty if none of the variables is set.
std::filesystem::path cache_folder(std::string_view kind);

// Throws unless a file can be written in the folder, which is created if needed: writes a few
// bytes, syncs and removes them.
void require_writable(const std::filesystem::path& folder);

// Throws unless a file of this name can be written, or replaced: before work of which it will tell.
void require_writable_file(const std::filesystem::path& file);

// Throws unless the file system of `folder` has this much free space.
void require_space(const std::filesystem::path& folder, int64_t bytes);

// Throws if a single file may not have this many bytes (`ulimit -f`).
void require_file_size(const std::filesystem::path& path, int64_t bytes);

// Flushes creations and renames in the folder to disk. File systems that do not support it (some
// network ones) do not need it.
void sync_folder(const std::filesystem::path& folder);

// Reserves this much space in the folder and releases it: throws for limits that only show then,
// such as a quota. Does nothing if the file system cannot reserve.
void reserve_space(const std::filesystem::path& folder, int64_t bytes);

}  // namespace capstan
