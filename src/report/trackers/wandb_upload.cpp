#include "report/trackers/wandb_upload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "report/put_aside.h"

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

// The exit status of a process that leads a group, or nothing if they had to be ended.
std::optional<int> wait_for(pid_t process, double seconds, const std::function<bool()>& stopped) {
  using Steady = std::chrono::steady_clock;
  constexpr double kEndGrace = 0.5;  // seconds, to end by itself
  int status = 0;
  const auto ends_within = [&](double most, bool may_stop) {
    const auto end = Steady::now() + std::chrono::duration<double>(most);
    for (;;) {
      const pid_t found = ::waitpid(process, &status, WNOHANG);
      if (found == process || (found < 0 && errno != EINTR)) return true;
      if (Steady::now() >= end || (may_stop && stopped && stopped())) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  if (ends_within(seconds, true)) return status;
  ::kill(-process, SIGTERM);
  if (!ends_within(kEndGrace, false)) {
    ::kill(-process, SIGKILL);
    ::waitpid(process, &status, 0);
  }
  return std::nullopt;
}

std::string ending(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

std::vector<fs::path> wandb_runs(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->path().filename().string().starts_with("offline-run-") && !is_put_aside(it->path()) &&
        file_of(it->path()))
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

std::string upload_wandb(const fs::path& run, double seconds,
                         const std::function<bool()>& stopped) {
  std::error_code error;
  const fs::path log = run / "logs" / "upload.log";
  fs::create_directories(log.parent_path(), error);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (output < 0) return fmt::format("{}: cannot write: {}", log.string(), std::strerror(errno));
  if (const auto file = file_of(run)) fs::remove(mark_of(*file), error);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawnattr_t attributes;  // a group of its own: it starts a service
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::string program = "wandb", command = "sync", folder = run.string();
  char* words[] = {program.data(), command.data(), folder.data(), nullptr};
  pid_t process = 0;
  const int failed = ::posix_spawnp(&process, "wandb", &actions, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(output);
  if (failed != 0)
    return fmt::format("the program wandb cannot be started: {}{}", std::strerror(failed),
                       failed == ENOENT ? "; install it (pip install wandb)" : "");
  const auto status = wait_for(process, seconds, stopped);
  if (!status) return fmt::format("wandb sync did not end in {:g} s, or was stopped", seconds);
  // It ends with 0 after some errors, too.
  if (is_uploaded(run)) return {};
  return fmt::format("wandb sync {} and did not mark the run as uploaded; {} has what it said",
                     ending(*status), log.string());
}

}  // namespace capstan
