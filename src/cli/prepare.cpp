#include "cli/prepare.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/process_limits.h"

namespace capstan::cli {
namespace {

// If a standard stream is closed, the next file to be opened would get its number, and the
// program's output. /dev/null, opened read-only, takes the number instead; writing still fails.
void open_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

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
