#include "cli/prepare.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/process_limits.h"

namespace capstan::cli {
namespace {

// If a standard stream is closed, the next file to be opened would get its number, and the
// program's output. /dev/null, opened read-only, takes the number instead; writing still fails.
void open_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

#ifdef CAPSTAN_PREINIT
bool limited(int resource) {
  rlimit limit{};
  return ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY;
}

// OpenBLAS starts a thread per core when it is loaded. If a memory limit leaves no stack for one,
// it ends the process; if it leaves no buffer, the thread retries for ever. We do not need these
// threads, but only the environment can tell OpenBLAS so before main: under a limit, the program
// starts again with that variable set. The C library is not initialized yet.
void drop_blas_threads(int, char** argv, char** environment) {
  constexpr size_t kMost = 4096;
  static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
  static char* changed[kMost + 2];
  if (!limited(RLIMIT_AS) && !limited(RLIMIT_DATA)) return;
  size_t n = 0;
  for (char** entry = environment; *entry != nullptr && n < kMost; ++entry) {
    const std::string_view text = *entry;
    if (text == one_thread) return;
    if (!text.starts_with("OPENBLAS_NUM_THREADS=")) changed[n++] = *entry;
  }
  changed[n] = one_thread;
  static char program[4096];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) ::execve(program, argv, changed);
}

// The executable's preinit functions run before the constructors of all shared libraries.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = drop_blas_threads;
#endif

}  // namespace

void prepare_process() {
  open_streams();
  // Line buffering: lines appear at once and in order with stderr, even in a file.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // A file that grows past `ulimit -f` is then a write error, which we report.
  std::signal(SIGXFSZ, SIG_IGN);
  if (!process_limits().memory) return;
  ::mallopt(M_ARENA_MAX, 1);  // an arena per thread would take 64 MiB of address space each
}

}  // namespace capstan::cli
