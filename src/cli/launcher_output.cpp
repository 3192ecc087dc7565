#include "cli/launcher_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

std::string all_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool is_launcher(const fs::path& process) {
  constexpr std::string_view kNames[] = {"mpirun\n", "mpiexec\n", "orterun\n", "prterun\n"};
  const std::string name = all_of(process / "comm");
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Whether an option of its command line marks, merges or redirects what ranks print.
bool changes_output(const fs::path& process) {
  constexpr std::string_view kOptions[] = {
      "tag-output", "timestamp-output", "output",
      "xml",        "xml-file",         "output-filename",
      "xterm",      "stream-buffering", "merge-stderr-to-stdout"};
  const std::string words = all_of(process / "cmdline");
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find('\0', at), words.size());
    std::string_view word = std::string_view(words).substr(at, end - at);
    at = end + 1;
    if (!word.starts_with('-')) continue;
    word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
    word = word.substr(0, word.find('='));
    if (std::find(std::begin(kOptions), std::end(kOptions), word) != std::end(kOptions))
      return true;
  }
  return false;
}

void write_to(const fs::path& stream, int fd) {
  std::error_code error;
  if (!fs::read_symlink(stream, error).string().starts_with("pipe:")) return;
  const int own = ::open(stream.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (own < 0) return;  // another user's process, or no reader any more
  ::fcntl(own, F_SETFL, 0);
  ::dup2(own, fd);
  ::close(own);
}

}  // namespace

void write_past_launcher() {
  const fs::path launcher = fs::path("/proc") / std::to_string(::getppid());
  if (!is_launcher(launcher) || changes_output(launcher)) return;
  write_to(launcher / "fd/1", STDOUT_FILENO);
  write_to(launcher / "fd/2", STDERR_FILENO);
}

}  // namespace capstan::cli
