#include "cli/prepare.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/process_limits.h"

namespace capstan::cli {
namespace {

// If a standard stream is closed, the next file to be opened would get its number, and the
// program's output. /dev/null, opened read-only, takes the number instead; writing still fails.
void open_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

#ifdef CAPSTAN_SPINS
// A thread of a parallel loop that is done looks this often whether the others are, and then
// sleeps. GCC's OpenMP looks 300,000 times. On x86-64 a look takes 10 to 140 cycles, so that is up
// to 17 ms, in which a thread that has nothing to do keeps the core from one that has, if other
// programs use the machine as well. docs/performance.md has what was measured.
char g_spins[] = "GOMP_SPINCOUNT=3000";
char* g_replaced = nullptr;  // by g_spins

bool is(const char* entry, std::string_view name) {
  return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
}

// OpenMP reads the number once, in its constructor: before main, and after this function. The array
// of the environment has no space for another entry, so one that no constructor asks for gives its
// place until main begins.
void set_spins(int, char**, char** environment) {
  constexpr std::string_view kUsers[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"};
  constexpr std::string_view kFree[] = {"_", "SHLVL", "OLDPWD", "PWD", "HOME", "PATH"};
  for (char** entry = environment; *entry != nullptr; ++entry)
    for (const std::string_view name : kUsers)
      if (is(*entry, name)) return;
  for (const std::string_view name : kFree)
    for (char** entry = environment; *entry != nullptr; ++entry)
      if (is(*entry, name)) {
        g_replaced = std::exchange(*entry, g_spins);
        return;
      }
}

// The executable's preinit functions run before the constructors of all shared libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**,
                                                                             char**) = set_spins;

void restore_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (*entry == g_spins) *entry = g_replaced;
}
#else
void restore_environment() {}
#endif

}  // namespace

void prepare_process() {
  restore_environment();
  open_streams();
  // Line buffering: lines appear at once and in order with stderr, even in a file.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // A file that grows past `ulimit -f` is then a write error, which we report.
  std::signal(SIGXFSZ, SIG_IGN);
  if (!process_limits().memory) return;
  ::mallopt(M_ARENA_MAX, 1);  // an arena per thread would take 64 MiB of address space each
}

Arguments take_arguments(int argc, char** argv) {
  Arguments words(argv + 1, argv + argc);
  const auto hide = [](char* text) { std::memset(text, 'x', std::strlen(text)); };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const size_t value = word.find('=');
    if (!word.substr(0, value).ends_with("access_token")) continue;
    if (value != std::string_view::npos)
      hide(argv[i] + value + 1);
    else if (i + 1 < argc)
      hide(argv[++i]);
  }
  return words;
}

}  // namespace capstan::cli
