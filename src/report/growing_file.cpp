#include "report/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace capstan {

GrowingFile::GrowingFile(std::filesystem::path path, int flags) : path_(std::move(path)) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  fd_ = ::open(path_.c_str(), kFlags | flags, kUsualMode);
  require(fd_ >= 0, Fault::file, "{}: cannot write: {}", path_.string(), std::strerror(errno));
}

GrowingFile::~GrowingFile() {
  ::close(fd_);
}

int64_t GrowingFile::size() const {
  return ::lseek(fd_, 0, SEEK_END);
}

void GrowingFile::append(std::string_view text) {
  const int64_t before = size();
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string cause = std::strerror(errno);
      const bool whole = ::ftruncate(fd_, before) == 0;
      fail(Fault::file, "{}: cannot write: {}{}; free some space and resume the run",
           path_.string(), cause, whole ? "" : " (its last line is incomplete)");
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void GrowingFile::sync() const {
  int result;
  do result = ::fsync(fd_);
  while (result != 0 && errno == EINTR);
  require(result == 0 || errno == EINVAL || errno == ENOTSUP, Fault::file,
          "{}: cannot write: {}; check the disk and resume the run", path_.string(),
          std::strerror(errno));
}

}  // namespace capstan
