#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    require(fd_ >= 0, Fault::file, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  operator int() const { return fd_; }

 private:
  int fd_;
};

// Makes renames in the folder last. File systems that cannot do it (some network ones) need not.
void sync_folder(const fs::path& folder) {
  const Descriptor fd(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail(Fault::file, "{}: cannot sync: {}", folder.string(), std::strerror(errno));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path with_suffix(fs::path path, const char* suffix) {
  return path += suffix;
}

// A name in the same folder that nobody else would choose: what has it is ours to delete.
fs::path beside(const fs::path& path, const char* what) {
  return path.parent_path() / ("." + path.filename().string() + ".capstan-" + what);
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, Fault::file, "{}: cannot rename to {}: {}", from.string(), to.string(),
          error.message());
}

// Moves a folder that has the name out of the way first, and back if the new one cannot have it.
void move_in(const fs::path& from, const fs::path& to, const fs::path& old) {
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

}  // namespace

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor fd(path, O_RDONLY);
  struct stat info {};
  require(::fstat(fd, &info) == 0, Fault::file, "{}: cannot read: {}", path.string(),
          std::strerror(errno));
  require(S_ISREG(info.st_mode), Fault::file, "{}: expected a file, found something else",
          path.string());
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;  // an empty mapping is an error to mmap
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  require(data != MAP_FAILED, Fault::file, "{}: cannot map {}: {}", path.string(),
          format_bytes(static_cast<double>(size_)), std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_text(const fs::path& path, int64_t max_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  require(static_cast<int64_t>(bytes.size()) <= max_bytes, Fault::file,
          "{}: expected at most {}, found {}", path.string(),
          format_bytes(static_cast<double>(max_bytes)),
          format_bytes(static_cast<double>(bytes.size())));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

NewFile::NewFile(fs::path path, int64_t expected_bytes)
    : path_(std::move(path)), part_(with_suffix(path_, ".part")), expected_(expected_bytes) {
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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
  const std::string cause = std::strerror(errno);
  std::error_code error;
  const fs::space_info space = fs::space(folder_of(path_), error);
  fail(Fault::file, "{}: cannot {} the file: {}; it needs {}, and {} are free", path_.string(),
       doing, cause, format_bytes(static_cast<double>(expected_)),
       error ? "an unknown number of bytes" : format_bytes(static_cast<double>(space.available)));
}

void NewFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("write");
    written_ += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void NewFile::commit() {
  if (::fsync(fd_) != 0) fail_with_errno("write");
  // Some network file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail_with_errno("write");
  rename_path(part_, path_);
  done_ = true;
  sync_folder(folder_of(path_));
}

void write_text(const fs::path& path, std::string_view text) {
  NewFile file(path, static_cast<int64_t>(text.size()));
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

NewFolder::NewFolder(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "out/"
  part_ = beside(path_, "part");
  std::error_code error;
  if (fs::exists(path_, error)) {
    require(fs::is_directory(path_, error), Fault::file,
            "{}: expected a folder or nothing, found a file; choose another name", path_.string());
    const bool empty = fs::is_empty(path_, error);
    const bool checkpoint = fs::exists(path_ / "config.json", error) ||
                            fs::exists(path_ / "adapter_config.json", error);
    require(empty || checkpoint, Fault::file,
            "{}: expected a checkpoint to replace, found a folder with other files (no "
            "config.json); choose another folder or empty it",
            path_.string());
  }
  fs::remove_all(part_, error);  // what a crash left behind
  if (!error) fs::create_directories(part_, error);
  require(!error, Fault::file, "{}: cannot create the folder: {}", path_.string(), error.message());
}

NewFolder::~NewFolder() {
  std::error_code error;
  if (!done_) fs::remove_all(part_, error);
}

void NewFolder::commit() {
  sync_folder(part_);
  fs::path old = part_;
  // One atomic exchange where there is a folder to replace and the file system can do it.
  if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    old = beside(path_, "old");
    move_in(part_, path_, old);
  }
  done_ = true;
  sync_folder(folder_of(path_));
  std::error_code error;
  fs::remove_all(old, error);
  if (error) log::warn("{}: cannot delete what was replaced: {}", old.string(), error.message());
}

void require_space(const fs::path& folder, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return;  // the write will tell
  require(space.available >= static_cast<uintmax_t>(bytes), Fault::file,
          "{}: needs {}, and {} are free; make room or choose another disk", folder.string(),
          format_bytes(static_cast<double>(bytes)),
          format_bytes(static_cast<double>(space.available)));
}

}  // namespace capstan
