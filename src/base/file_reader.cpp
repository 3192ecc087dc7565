#include "base/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace capstan {

// O_NONBLOCK: opening a pipe without a writer would block.
FileReader::FileReader(std::filesystem::path path, Links links) : path_(std::move(path)) {
  const int flags = links == Links::refuse ? O_NOFOLLOW : 0;
  fd_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
  require(fd_ >= 0, Fault::file, "{}: cannot open: {}", path_.string(), std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    mode_ = info.st_mode & 0777;
    return;
  }
  const std::string what = !known                   ? std::strerror(errno)
                           : S_ISDIR(info.st_mode)  ? "a folder"
                           : S_ISFIFO(info.st_mode) ? "a pipe, which can only be read once"
                                                    : "a device or socket";
  ::close(fd_);
  fail(Fault::file, "{}: expected a file, found {}", path_.string(), what);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      mode_(other.mode_),
      fd_(std::exchange(other.fd_, -1)) {}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

FileReader::Failure FileReader::try_read(int64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_, to.data(), to.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {at, n < 0 ? errno : 0};
    at += n;
    to = to.subspan(static_cast<size_t>(n));
  }
  return {};
}

void FileReader::fail_if(const Failure& failure) const {
  if (failure.at == INT64_MAX) return;
  require(
      failure.error != 0, Fault::file,
      "{}: expected {} bytes, found the end at byte {}: the file was truncated while it was read",
      path_.string(), size_, failure.at);
  fail(Fault::file, "{}: cannot read byte {}: {}; copy the file again, or check the disk",
       path_.string(), failure.at, std::strerror(failure.error));
}

void FileReader::read(int64_t at, std::span<std::byte> to) const {
  fail_if(try_read(at, to));
}

void FileReader::read_parallel(int64_t at, std::span<std::byte> to) const {
  constexpr int64_t kGrain = 1 << 20;
  std::mutex mutex;
  Failure first;
  parallel_for(std::ssize(to), kGrain, [&](int64_t begin, int64_t end) {
    const Failure failure = try_read(
        at + begin, to.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    const std::scoped_lock lock(mutex);
    if (failure.at < first.at) first = failure;
  });
  fail_if(first);
}

FileBytes::FileBytes(const std::filesystem::path& path) {
  const FileReader file(path);
  size_ = static_cast<size_t>(file.size());
  data_ = std::make_unique_for_overwrite<std::byte[]>(size_);
  file.read_parallel(0, {data_.get(), size_});
}

}  // namespace capstan
