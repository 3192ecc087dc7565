#include "support/fail_writes.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace {

enum class Mode { none, enospc, eio, full, cut, kill };
enum class Verdict { go_on, fail, half };

std::atomic<int64_t> calls{0};
int64_t fail_at = 0;
Mode mode = Mode::none;
bool plain = false;

Mode mode_of(const char* name) {
  const struct {
    const char* name;
    Mode mode;
  } modes[] = {{"enospc", Mode::enospc},
               {"eio", Mode::eio},
               {"full", Mode::full},
               {"short", Mode::cut},
               {"kill", Mode::kill}};
  for (const auto& m : modes)
    if (name != nullptr && strncmp(m.name, name, strlen(m.name)) == 0) return m.mode;
  return Mode::none;
}

// What becomes of the next call.
Verdict judge(bool is_write, bool needs_space) {
  if (mode == Mode::none) return Verdict::go_on;
  const int64_t n = ++calls;
  if (mode == Mode::full && n > fail_at && needs_space) {
    errno = ENOSPC;
    return Verdict::fail;
  }
  if (n != fail_at) return Verdict::go_on;
  switch (mode) {
    case Mode::cut: return is_write ? Verdict::half : Verdict::go_on;
    case Mode::kill:
      if (is_write) return Verdict::half;
      ::kill(getpid(), SIGKILL);
      return Verdict::fail;
    case Mode::full:
      if (!needs_space) return Verdict::go_on;
      errno = ENOSPC;
      return Verdict::fail;
    default: errno = mode == Mode::eio ? EIO : ENOSPC; return Verdict::fail;
  }
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// A write whose first half alone may be done.
template <class Whole, class Half>
ssize_t judged_write(int fd, const Whole& whole, const Half& half) {
  if (fd <= STDERR_FILENO) return whole();
  switch (judge(true, true)) {
    case Verdict::go_on: return whole();
    case Verdict::fail: return -1;
    case Verdict::half: break;
  }
  const ssize_t n = half();
  if (mode == Mode::kill) ::kill(getpid(), SIGKILL);
  return n;
}

size_t half_of(size_t n) {
  return n < 2 ? n : n / 2;
}

struct ArmedByEnvironment {
  ArmedByEnvironment() {
    const char* at = getenv("CAPSTAN_FAIL_AT");
    if (at != nullptr) fail_writes_arm(atoll(at), getenv("CAPSTAN_FAIL_MODE"));
  }
} armed_by_environment;

}  // namespace

extern "C" {

void fail_writes_arm(int64_t at, const char* name) {
  calls = 0;
  fail_at = at;
  mode = mode_of(name);
  plain = name != nullptr && strstr(name, "-plain") != nullptr;
}

int64_t fail_writes_calls() {
  return calls;
}

ssize_t write(int fd, const void* data, size_t n) {
  static auto* real = next<decltype(write)>("write");
  return judged_write(
      fd, [&] { return real(fd, data, n); }, [&] { return real(fd, data, half_of(n)); });
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  static auto* real = next<decltype(pwrite)>("pwrite");
  return judged_write(
      fd, [&] { return real(fd, data, n, at); }, [&] { return real(fd, data, half_of(n), at); });
}

ssize_t writev(int fd, const struct iovec* parts, int n) {
  static auto* real = next<decltype(writev)>("writev");
  return judged_write(
      fd, [&] { return real(fd, parts, n); }, [&] { return real(fd, parts, n < 2 ? n : n / 2); });
}

int fsync(int fd) {
  static auto* real = next<decltype(fsync)>("fsync");
  return judge(false, false) == Verdict::go_on ? real(fd) : -1;
}

int fdatasync(int fd) {
  static auto* real = next<decltype(fdatasync)>("fdatasync");
  return judge(false, false) == Verdict::go_on ? real(fd) : -1;
}

int rename(const char* from, const char* to) {
  static auto* real = next<int(const char*, const char*)>("rename");
  return judge(false, false) == Verdict::go_on ? real(from, to) : -1;
}

int renameat(int from_fd, const char* from, int to_fd, const char* to) {
  static auto* real = next<int(int, const char*, int, const char*)>("renameat");
  return judge(false, false) == Verdict::go_on ? real(from_fd, from, to_fd, to) : -1;
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  static auto* real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (plain) {
    errno = EINVAL;
    return -1;
  }
  return judge(false, false) == Verdict::go_on ? real(from_fd, from, to_fd, to, flags) : -1;
}

int open(const char* path, int flags, ...) {
  static auto* real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t permissions = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && judge(false, (flags & O_CREAT) != 0) != Verdict::go_on) return -1;
  return real(path, flags, permissions);
}

int openat(int folder, const char* path, int flags, ...) {
  static auto* real = next<int(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t permissions = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && judge(false, (flags & O_CREAT) != 0) != Verdict::go_on) return -1;
  return real(folder, path, flags, permissions);
}

int ftruncate(int fd, off_t size) {
  static auto* real = next<int(int, off_t)>("ftruncate");
  return judge(false, true) == Verdict::go_on ? real(fd, size) : -1;
}

int fallocate(int fd, int flags, off_t at, off_t size) {
  static auto* real = next<int(int, int, off_t, off_t)>("fallocate");
  return judge(false, true) == Verdict::go_on ? real(fd, flags, at, size) : -1;
}

int posix_fallocate(int fd, off_t at, off_t size) {
  static auto* real = next<int(int, off_t, off_t)>("posix_fallocate");
  return judge(false, true) == Verdict::go_on ? real(fd, at, size) : errno;  // it returns the error
}

int mkdir(const char* path, mode_t permissions) {
  static auto* real = next<int(const char*, mode_t)>("mkdir");
  return judge(false, true) == Verdict::go_on ? real(path, permissions) : -1;
}

}  // extern "C"
