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

// A standard stream that is closed would be the number of the next file that is opened, which would
// get its lines. Nothing can be written to what stands there now, as before.
void open_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

// When OpenBLAS is loaded it starts a thread per core, which takes a buffer, and asks for it for
// ever where a limit leaves none. Nobody needs these threads, and only the environment can tell it
// so before it is loaded.
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
  // Lines appear when they are said, and in order with stderr, where they go to a file as well.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // A file that grows past `ulimit -f` is then an error of the write, which is told.
  std::signal(SIGXFSZ, SIG_IGN);
  if (!process_limits().memory) return;
  drop_blas_threads(argv);
  ::mallopt(M_ARENA_MAX, 1);  // each thread's own would take 64 MiB of the address space
}

}  // namespace capstan::cli
