#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "base/stop_token.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "report/trackers/mlflow_sender.h"
#include "report/trackers/wandb_upload.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

// Sends one outbox; returns the number of records that have not arrived.
int64_t send(const fs::path& folder, double patience, const StopToken& stop) {
  MlflowSender sender(folder, mlflow_access(), [&] { return stop.requested(); });
  const int64_t waiting = sender.waiting();
  if (waiting == 0) {
    log::say("{}: everything has arrived", folder.string());
    return 0;
  }
  auto last = std::chrono::steady_clock::now();
  for (;;) {
    const auto outcome = sender.send_some();
    for (const std::string& complaint : sender.take_complaints()) log::warn("{}", complaint);
    if (stop.requested()) break;
    if (outcome == MlflowSender::Outcome::nothing) break;
    if (outcome == MlflowSender::Outcome::sent) {
      last = std::chrono::steady_clock::now();
      continue;
    }
    const std::chrono::duration<double> idle = std::chrono::steady_clock::now() - last;
    if (outcome == MlflowSender::Outcome::refused || idle.count() > patience) {
      log::warn("{}", sender.why());
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  const int64_t left = sender.waiting();
  log::say("{}: sent {} of {}", folder.string(), waiting - left, count(waiting, "record"));
  return left;
}

// Uploads W&B's runs that are not there yet; returns how many are left.
int64_t upload(const std::vector<fs::path>& runs, double patience, const StopToken& stop) {
  int64_t left = 0;
  const auto stopped = [&] { return stop.requested(); };
  for (const fs::path& run : runs) {
    if (stopped()) break;
    const bool there = is_uploaded(run);
    const std::string why = there ? "" : upload_wandb(run, patience, stopped);
    if (why.empty())
      log::say("{}: {}", run.string(), there ? "everything has arrived" : "uploaded");
    else
      log::warn("{}: {}", run.string(), why);
    left += why.empty() ? 0 : 1;
  }
  return left;
}

}  // namespace

int sync(const Arguments& arguments, const StopToken& stop) {
  CommandLine line(
      "Sends what a run measured to MLflow, if its server was away when the run ended, and to W&B, "
      "by its program wandb.",
      "capstan sync OUT_DIR");
  std::string name;
  double timeout = 10, upload_timeout = 600;
  line.required("out_dir", name, "folder of the run");
  line.option("--timeout", timeout, "seconds to wait for the server", {.least = 0, .most = 86400});
  line.option("--upload_timeout", upload_timeout, "seconds that wandb sync may take for a run",
              {.least = 0, .most = 86400});
  if (!line.parse(arguments)) return 0;
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path logs = fs::path(name) / "logs" / "mlflow";
  if (fs::exists(fs::path(name) / "outbox.jsonl", error)) folders.emplace_back(name);
  for (fs::directory_iterator it(logs, error), end; !error && it != end; it.increment(error))
    if (fs::exists(it->path() / "outbox.jsonl")) folders.push_back(it->path());
  const auto runs = wandb_runs(fs::path(name) / "logs" / "wandb");
  require(!folders.empty() || !runs.empty(), Fault::file,
          "{}: expected the folder of a run with --logger_name mlflow or wandb, which has "
          "logs/mlflow/version_N/outbox.jsonl or logs/wandb",
          name);
  std::sort(folders.begin(), folders.end());
  int64_t left = 0;
  for (const fs::path& folder : folders)
    if (!stop.requested()) left += send(folder, timeout, stop);
  const int64_t not_uploaded = upload(runs, upload_timeout, stop);
  if (const int signal = stop.signal(); signal != 0) {
    log::warn("interrupted; the same command goes on from here");
    return 128 + signal;
  }
  require(left == 0, Fault::peer, "MLflow: {} not sent; try again when the server answers",
          count(left, "record"));
  require(not_uploaded == 0, Fault::peer, "W&B: {} not uploaded", count(not_uploaded, "run"));
  return 0;
}

}  // namespace capstan::cli
