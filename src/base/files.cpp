#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/log.h"
#include "base/units.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : Descriptor(::open(path.c_str(), flags | O_CLOEXEC), path) {}
  Descriptor(int fd, const fs::path& path) : fd_(fd) {
    require(fd_ >= 0, Fault::file, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  operator int() const { return fd_; }

 private:
  int fd_;
};

int sync_to_disk(int fd) {
  int result;
  do result = ::fsync(fd);
  while (result != 0 && errno == EINTR);
  return result;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path with_suffix(fs::path path, const char* suffix) {
  return path += suffix;
}

// A name in the same folder that nobody else would use: a file of that name is ours to delete.
fs::path sibling(const fs::path& path, const char* what) {
  return path.parent_path() / ("." + path.filename().string() + ".capstan-" + what);
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, Fault::file, "{}: cannot rename to {}: {}", from.string(), to.string(),
          error.message());
}

// Moves an existing folder of that name out of the way first, and back if the rename fails.
void rename_into_place(const fs::path& from, const fs::path& to, const fs::path& old) {
  std::error_code error;
  const bool replaces = fs::exists(to, error);
  if (replaces) {
    fs::remove_all(old, error);
    rename_path(to, old);
  }
  fs::rename(from, to, error);
  if (!error) return;
  const std::string cause = error.message();
  if (replaces) rename_path(old, to);
  fail(Fault::file, "{}: cannot rename to {}: {}", from.string(), to.string(), cause);
}

// Takes the lock and returns false, or true if another process holds it. A file system without
// locks counts as unlocked.
bool locked_by_other(int fd) {
  return ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Whether the open file still has that name.
bool has_name(int fd, const fs::path& path) {
  struct stat mine = {}, named = {};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino;
}

// Removes what a dead process left under the name, or what a user put there: for a link, only the
// link.
void remove_stale(const fs::path& part) {
  const int fd = ::open(part.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const bool others = fd >= 0 && locked_by_other(fd);
  const bool removed = !others && (::unlink(part.c_str()) == 0 || errno == ENOENT);
  const int cause = errno;
  if (fd >= 0) ::close(fd);
  require(!others, Fault::file,
          "{}: another process is writing this file; wait for it, or choose another folder",
          part.string());
  require(removed, Fault::file, "{}: is in the way and cannot be removed: {}; remove it",
          part.string(), std::strerror(cause));
}

// Creates and locks a new file, open for writing; returns -1 and sets errno on failure.
int create_locked(const fs::path& part, mode_t mode) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = ::open(part.c_str(), kFlags, mode);
    if (fd < 0 && errno != EEXIST) return -1;
    if (fd < 0) {
      remove_stale(part);
      continue;
    }
    // Another process that came between the two calls took it for a leftover.
    if (!locked_by_other(fd) && has_name(fd, part)) return fd;
    ::close(fd);
  }
  errno = EBUSY;
  return -1;
}

int64_t largest_file() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur > INT64_MAX) return INT64_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

[[noreturn]] void fail_too_large(const fs::path& path, int64_t bytes) {
  const int64_t most = largest_file();
  fail(Fault::file, "{}: cannot write the file: {}; it needs {}, but files are limited to {}{}",
       path.string(), std::strerror(EFBIG), format_bytes(static_cast<double>(bytes)),
       most == INT64_MAX ? "fewer" : format_bytes(static_cast<double>(most)),
       most == INT64_MAX ? "" : " (ulimit -f); raise the limit");
}

// Whether the file system has no inode left for another file, which the kernel reports as a lack of
// space. Some file systems have no fixed number of them and say 0 of 0.
bool out_of_inodes(const fs::path& folder) {
  struct statvfs facts {};
  return ::statvfs(folder.c_str(), &facts) == 0 && facts.f_files > 0 && facts.f_favail == 0;
}

constexpr const char* kNoInodes =
    "the file system cannot have more files (its inode table is full); delete some files or choose "
    "another disk";

int open_and_lock(const fs::path& folder, bool& others) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  others = fd >= 0 && locked_by_other(fd);
  return fd;
}

// Whether a live process is writing the folder.
bool in_use(const fs::path& folder) {
  bool others = false;
  const int fd = open_and_lock(folder, others);
  if (fd >= 0) ::close(fd);
  return others;
}

void require_replaceable(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  require(fs::is_directory(path, error), Fault::file,
          "{}: expected a folder or nothing, found a file; choose another name", path.string());
  const bool empty = fs::is_empty(path, error);
  const bool checkpoint =
      fs::exists(path / "config.json", error) || fs::exists(path / "adapter_config.json", error);
  require(empty || checkpoint, Fault::file,
          "{}: expected a checkpoint to replace, found a folder with other files (no "
          "config.json); choose another folder or empty it",
          path.string());
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warn("{}: cannot remove: {}", path.string(), error.message());
}

}  // namespace

void sync_folder(const fs::path& folder) {
  const Descriptor fd(folder, O_RDONLY | O_DIRECTORY);
  if (sync_to_disk(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail(Fault::file, "{}: cannot sync: {}", folder.string(), std::strerror(errno));
}

std::string read_text(const fs::path& path, int64_t max_bytes) {
  const FileReader file(path);
  require(file.size() <= max_bytes, Fault::file, "{}: expected at most {}, found {}", path.string(),
          format_bytes(static_cast<double>(max_bytes)),
          format_bytes(static_cast<double>(file.size())));
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

NewFile::NewFile(fs::path path, int64_t expected_bytes, mode_t mode)
    : path_(std::move(path)), part_(with_suffix(path_, ".part")), expected_(expected_bytes) {
  require_file_size(path_, expected_);
  fd_ = create_locked(part_, mode);
  if (fd_ < 0) fail_with_errno("create");
  if (expected_ == 0 || ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, expected_) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    const int cause = errno;
    ::close(fd_);
    ::unlink(part_.c_str());
    errno = cause;
    fail_with_errno("reserve space for");
  }
}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!done_) ::unlink(part_.c_str());
}

void NewFile::fail_with_errno(const char* doing) const {
  if (errno == EFBIG) fail_too_large(path_, expected_);
  if (errno == ENOSPC && out_of_inodes(folder_of(path_)))
    fail(Fault::file, "{}: cannot {} the file: {}", path_.string(), doing, kNoInodes);
  const std::string cause = std::strerror(errno);
  std::error_code error;
  const fs::space_info space = fs::space(folder_of(path_), error);
  fail(Fault::file, "{}: cannot {} the file: {}; it needs {}, but {} are free", path_.string(),
       doing, cause, format_bytes(static_cast<double>(expected_)),
       error ? "an unknown number of bytes" : format_bytes(static_cast<double>(space.available)));
}

void NewFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("write");
    sum_.update(bytes.first(static_cast<size_t>(n)));
    written_ += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

FileSum NewFile::commit() {
  if (sync_to_disk(fd_) != 0) fail_with_errno("write");
  const Descriptor locked(::dup(fd_), part_);  // until the file gets its name
  // Some network file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail_with_errno("write");
  rename_path(part_, path_);
  done_ = true;
  sync_folder(folder_of(path_));
  return {written_, sum_.hex()};
}

FileSum write_text(const fs::path& path, std::string_view text, mode_t mode) {
  NewFile file(path, static_cast<int64_t>(text.size()), mode);
  file.append(std::as_bytes(std::span(text)));
  return file.commit();
}

NewFolder::NewFolder(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
  std::error_code error;
  const auto strip = [&] {  // "out/", "out/."
    while (path_.has_relative_path() && (!path_.has_filename() || path_.filename() == "."))
      path_ = path_.parent_path();
  };
  strip();
  // Step by step: the target of the last link need not exist.
  constexpr int kMostLinks = 40;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path_, error); ++i) {
    path_ = path_.parent_path() / fs::read_symlink(path_, error);
    strip();
  }
  require(!fs::is_symlink(path_, error), Fault::file, "{}: is a link to itself", path_.string());
  part_ = sibling(path_, "part");
  require_replaceable(path_);
  require(!in_use(part_), Fault::file,
          "{}: another process is writing this folder (as {}); wait for it, or choose another name",
          path_.string(), part_.string());
  fs::remove_all(part_, error);  // leftover of a crash
  if (!error) fs::create_directories(part_, error);
  if (error == std::errc::no_space_on_device && out_of_inodes(folder_of(path_)))
    fail(Fault::file, "{}: cannot create the folder: {}", path_.string(), kNoInodes);
  require(!error, Fault::file, "{}: cannot create the folder: {}", path_.string(), error.message());
  bool others = false;
  lock_ = open_and_lock(part_, others);
}

NewFolder::~NewFolder() {
  if (!done_) remove_or_warn(part_);
  if (lock_ >= 0) ::close(lock_);
}

void NewFolder::commit() {
  sync_folder(part_);
  fs::path old = part_;
  // One atomic exchange, if there is a folder to replace and the file system supports it.
  if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    old = replaced_name(path_);
    rename_into_place(part_, path_, old);
  }
  done_ = true;
  sync_folder(folder_of(path_));
  remove_or_warn(old);
}

namespace {
constexpr const char* kLockName = ".capstan-lock";
}

// Locks a file: network file systems do not share the lock of a folder between machines.
FolderLock::FolderLock(const fs::path& folder) : file_(folder / kLockName) {
  std::error_code error;
  for (fs::path above = folder; !above.empty() && !fs::exists(above, error);
       above = above.parent_path())
    made_.push_back(above);
  fs::create_directories(folder, error);  // writing there will report the reason
  // The previous owner may remove the file between the two calls: then another file has the name.
  for (int attempt = 0; attempt < 100; ++attempt) {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kUsualMode);
    if (fd_ < 0) return;
    const bool others = locked_by_other(fd_);
    if (!others && has_name(fd_, file_)) return;
    ::close(fd_);
    if (others)
      fail(Fault::file,
           "{}: another process is using this folder. Wait until it ends, or choose another folder",
           folder.string());
  }
  fd_ = -1;
}

FolderLock::~FolderLock() {
  std::error_code error;
  if (fd_ >= 0) fs::remove(file_, error);
  for (const fs::path& folder : made_) fs::remove(folder, error);  // only if it is empty
  if (fd_ >= 0) ::close(fd_);
}

fs::path replaced_name(const fs::path& path) {
  return sibling(path, "old");
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> parts, replaced;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') || !entry.is_directory(error)) continue;
    if (name.ends_with(".capstan-part")) parts.push_back(entry.path());
    if (name.ends_with(".capstan-old")) replaced.push_back(entry.path());
  }
  for (const fs::path& old : replaced) {
    const std::string hidden = old.filename();
    const fs::path name = folder / hidden.substr(1, hidden.rfind('.') - 1);
    if (in_use(sibling(name, "part"))) continue;
    if (fs::exists(name, error)) {
      remove_or_warn(old);
      continue;
    }
    fs::rename(old, name, error);
    if (error)
      log::warn("{}: cannot rename to {}: {}", old.string(), name.string(), error.message());
  }
  for (const fs::path& path : parts)
    if (!in_use(path)) remove_or_warn(path);
}

void remove_folder(const fs::path& path) {
  const fs::path part = sibling(path, "part");
  std::error_code error;
  fs::rename(path, part, error);
  remove_or_warn(error ? path : part);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::canonical(path, error);
  if (error) return false;
  const fs::path outer = fs::canonical(folder, error);
  return !error &&
         std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

std::string folder_name(const fs::path& folder) {
  const fs::path whole = fs::weakly_canonical(folder);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

fs::path cache_folder(std::string_view kind) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path own = variable("CAPSTAN_CACHE"); !own.empty()) return own;
  if (const fs::path xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "capstan" / kind;
  if (const fs::path home = variable("HOME"); !home.empty())
    return home / ".cache" / "capstan" / kind;
  return {};
}

void require_writable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error == std::errc::no_space_on_device && out_of_inodes(folder_of(folder)))
    fail(Fault::file, "{}: cannot create the folder: {}", folder.string(), kNoInodes);
  require(!error, Fault::file, "{}: cannot create the folder: {}", folder.string(),
          error.message());
  const fs::path probe = folder / ".capstan-probe";
  write_text(probe, "Can this be written?\n");
  fs::remove(probe, error);
  require(!error, Fault::file, "{}: cannot remove: {}", probe.string(), error.message());
}

void require_writable_file(const fs::path& file) {
  std::error_code error;
  require(!file.filename().empty() && !fs::is_directory(file, error), Fault::file,
          "{}: expected the name of a file, found a folder; name a file in it", file.string());
  require_writable(folder_of(file));
}

void require_space(const fs::path& folder, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return;  // the write will report it
  require(!out_of_inodes(folder), Fault::file, "{}: {}", folder.string(), kNoInodes);
  require(space.available >= static_cast<uintmax_t>(bytes), Fault::file,
          "{}: needs {}, but {} are free; free some space or choose another disk", folder.string(),
          format_bytes(static_cast<double>(bytes)),
          format_bytes(static_cast<double>(space.available)));
}

void require_file_size(const fs::path& path, int64_t bytes) {
  if (bytes > largest_file()) fail_too_large(path, bytes);
}

void reserve_space(const fs::path& folder, int64_t bytes) {
  const int64_t file = std::min<int64_t>(5'000'000'000, largest_file());  // some file systems, too
  std::vector<std::unique_ptr<NewFile>> files;
  for (int64_t taken = 0; taken < bytes; taken += file)
    files.push_back(
        std::make_unique<NewFile>(folder / (".capstan-space-" + std::to_string(files.size())),
                                  std::min(file, bytes - taken)));
}

}  // namespace capstan
