#include "support/fail_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>

namespace {

std::string bad_read, bad_sync, slow_sync;
int64_t bad_byte = -1;
std::atomic<int64_t> failures{0};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_file(int fd, const std::string& end) {
  if (end.empty()) return false;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path);
  return n > 0 && std::string_view(path, static_cast<size_t>(n)).ends_with(end);
}

// How many of n bytes from `at` on can be read; -1 with errno where the first of them is the bad
// one.
ssize_t readable(int fd, size_t n, int64_t at) {
  const bool holds = at >= 0 && at <= bad_byte && bad_byte - at < static_cast<int64_t>(n);
  if (!holds || !is_file(fd, bad_read)) return static_cast<ssize_t>(n);
  if (at < bad_byte) return bad_byte - at;
  ++failures;
  errno = EIO;
  return -1;
}

struct ArmedByEnvironment {
  ArmedByEnvironment() {
    if (const char* read = getenv("CAPSTAN_FAIL_READ")) {
      const std::string_view all(read);
      const size_t place = all.rfind('@');
      bad_read = all.substr(0, place);
      bad_byte = atoll(read + place + 1);
    }
    if (const char* sync = getenv("CAPSTAN_FAIL_SYNC")) bad_sync = sync;
    if (const char* sync = getenv("CAPSTAN_SLOW_SYNC")) slow_sync = sync;
  }
} armed_by_environment;

}  // namespace

extern "C" {

void fail_reads_arm(const char* path, int64_t byte) {
  bad_read = path == nullptr ? "" : path;
  bad_byte = byte;
  failures = 0;
}

int64_t fail_reads_count() {
  return failures;
}

ssize_t pread(int fd, void* to, size_t n, off_t at) {
  static auto* real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  const ssize_t some = readable(fd, n, at);
  return some < 0 ? some : real(fd, to, static_cast<size_t>(some), at);
}

ssize_t read(int fd, void* to, size_t n) {
  static auto* real = next<ssize_t(int, void*, size_t)>("read");
  const ssize_t some =
      bad_read.empty() ? static_cast<ssize_t>(n) : readable(fd, n, lseek(fd, 0, SEEK_CUR));
  return some < 0 ? some : real(fd, to, static_cast<size_t>(some));
}

int fsync(int fd) {
  static auto* real = next<int(int)>("fsync");
  if (is_file(fd, slow_sync)) sleep(3);
  if (!is_file(fd, bad_sync)) return real(fd);
  errno = EIO;
  return -1;
}

}  // extern "C"
