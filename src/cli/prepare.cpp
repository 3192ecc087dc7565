#include "cli/prepare.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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

// OpenBLAS starts a thread per core when it is loaded. Each takes a buffer, and retries for ever if
// a memory limit leaves none. We do not need these threads, and only the environment can tell
// OpenBLAS before it is loaded.
void drop_blas_threads(char** argv) {
  constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
  const char* now = std::getenv(kThreads);
  if (now != nullptr && std::string_view(now) == "1") return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || ::setenv(kThreads, "1", 1) != 0) return;
  ::execv(program.c_str(), argv);
}

}  // namespace

void prepare_process(char** argv) {
  open_streams();
  // Line buffering: lines appear at once and in order with stderr, even in a file.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // A file that grows past `ulimit -f` is then a write error, which we report.
  std::signal(SIGXFSZ, SIG_IGN);
  if (!process_limits().memory) return;
  drop_blas_threads(argv);
  ::mallopt(M_ARENA_MAX, 1);  // an arena per thread would take 64 MiB of address space each
}

}  // namespace capstan::cli
