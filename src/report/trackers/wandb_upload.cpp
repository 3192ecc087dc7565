#include "report/trackers/wandb_upload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

extern char** environ;

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> file_of(const fs::path& run) {
  std::error_code error;
  for (fs::directory_iterator it(run, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".wandb") return it->path();
  return std::nullopt;
}

fs::path mark_of(const fs::path& file) {
  return file.string() + ".synced";
}

// The exit status, or nothing if it had to be ended.
std::optional<int> wait_for(pid_t process, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  for (;;) {
    const pid_t found = ::waitpid(process, &status, WNOHANG);
    if (found == process) return status;
    if (found < 0 && errno != EINTR) return status;
    if (Clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(process, SIGTERM);
  ::waitpid(process, &status, 0);
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> wandb_runs(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->path().filename().string().starts_with("offline-run-") && file_of(it->path()))
      runs.push_back(it->path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

bool is_uploaded(const fs::path& run) {
  std::error_code error;
  const auto file = file_of(run);
  return file && fs::exists(mark_of(*file), error) &&
         fs::last_write_time(mark_of(*file), error) >= fs::last_write_time(*file, error);
}

std::string upload_wandb(const fs::path& run, double seconds) {
  std::error_code error;
  if (const auto file = file_of(run)) fs::remove(mark_of(*file), error);
  const fs::path log = run / "logs" / "upload.log";
  fs::create_directories(log.parent_path(), error);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::string program = "wandb", command = "sync", folder = run.string();
  char* words[] = {program.data(), command.data(), folder.data(), nullptr};
  pid_t process = 0;
  const int failed = ::posix_spawnp(&process, "wandb", &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return fmt::format("the program wandb cannot be started: {}; install it (pip install wandb)",
                       std::strerror(failed));
  const auto status = wait_for(process, seconds);
  if (!status) return fmt::format("wandb sync did not end in {:g} s", seconds);
  // It ends with 0 after some errors, too.
  if (is_uploaded(run)) return {};
  return fmt::format(
      "wandb sync ended with status {} and did not mark the run as uploaded; {} has "
      "what it said",
      WIFEXITED(*status) ? WEXITSTATUS(*status) : -1, log.string());
}

}  // namespace capstan
