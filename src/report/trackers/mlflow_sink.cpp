#include "report/trackers/mlflow_sink.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "report/trackers/machine_load.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenSamples = std::chrono::seconds(10);
constexpr auto kLongestPause = std::chrono::seconds(30), kPatience = std::chrono::seconds(10);
// At the end: when the wait is told, and when it ends after a signal.
constexpr auto kUntold = std::chrono::milliseconds(500), kGrace = std::chrono::milliseconds(500);
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_hex_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", random());
  return id;
}

// JSON has no such numbers, and MLflow reads these words.
json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string status_of(RunEnd end) {
  switch (end) {
    case RunEnd::finished: return "FINISHED";
    case RunEnd::stopped: return "KILLED";
    case RunEnd::failed: return "FAILED";
  }
  return "FAILED";
}

// What a resumed run computes again, bit for bit, and metrics.csv has: not the times.
std::string certain_part(json metrics) {
  metrics.erase("iter_time");
  metrics.erase("grad_norm");
  return metrics.dump();
}

json run_record(const RunLabels& labels) {
  json params = json::object();
  for (const auto& [key, value] : labels.params) params[key] = value;
  return {{"run",
           {{"id", random_hex_id()},
            {"project", labels.project},
            {"name", labels.run},
            {"group", labels.group},
            {"time", now_ms()},
            {"params", params}}}};
}

fs::path mended(const fs::path& folder, const RunLabels& labels) {
  mend_outbox(folder, run_record(labels));
  return outbox_in(folder);
}

}  // namespace

MlflowSink::MlflowSink(const fs::path& folder, const RunLabels& labels)
    : goes_on_(fs::exists(outbox_in(folder))),
      outbox_(mended(folder, labels)),
      sender_(folder, mlflow_access(), [this] { return given_up_.load(); }) {
  std::ifstream file(outbox_.path(), std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const json record = outbox_record(line);
    if (outbox_kind(record) == OutboxRecord::metrics)
      earlier_.emplace(record["step"], certain_part(record["metrics"]));
  }
  if (goes_on_) append({{"status", "RUNNING"}, {"time", now_ms()}});
  thread_ = std::thread([this] { run(); });
}

MlflowSink::~MlflowSink() {
  finish(RunEnd::failed, {});
  deliver({});
}

void MlflowSink::append(const json& record) {
  const std::lock_guard lock(mutex_);
  outbox_.append(record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  changed_.notify_all();
}

void MlflowSink::write(const MetricsRow& row) {
  json metrics = json::object();
  for (const auto& [key, value] : named_values(row)) metrics[key] = number(value);
  if (earlier_.contains({row.step, certain_part(metrics)})) return;
  append({{"metrics", metrics}, {"step", row.step}, {"time", now_ms()}});
}

void MlflowSink::catch_up(std::span<const MetricsRow> rows) {
  for (const MetricsRow& row : rows) write(row);
}

void MlflowSink::finish(RunEnd end, std::span<const fs::path> files) {
  if (std::exchange(finished_, true)) return;
  try {
    for (const fs::path& file : files)
      append({{"file", fs::proximate(file, outbox_.path().parent_path()).string()},
              {"as", file.filename().string()}});
    append({{"status", status_of(end)}, {"time", now_ms()}});
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
  }
}

bool MlflowSink::deliver(const StopAsked& stopped) {
  if (!thread_.joinable()) return true;
  bool told = false;
  std::optional<Clock::time_point> end;
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    const auto start = Clock::now();
    while (!sender_done_) {
      changed_.wait_for(lock, kBetweenLooks);
      const auto now = Clock::now();
      if (!told && !end && now - start > kUntold) {
        told = true;
        log::say(
            "MLflow: waiting for its server to take what was measured (at most {} s without "
            "progress; Ctrl-C ends the wait)",
            kPatience.count());
      }
      if (!end && stopped && stopped()) end = now + kGrace;
      if (end && now > *end) given_up_ = true;
    }
  }
  thread_.join();
  const int64_t waiting = sender_.waiting();
  if (waiting > 0)
    log::warn("MLflow: {} waiting in {}; to send them when the server answers: capstan sync {}",
              count(waiting, "record"), outbox_.path().string(),
              in_shell(outbox_.path().parent_path().string()));
  return waiting == 0 || !end;
}

// The thread that sends.
void MlflowSink::run() {
  send_until_the_end();
  const std::lock_guard lock(mutex_);
  sender_done_ = true;
  changed_.notify_all();
}

void MlflowSink::send_until_the_end() {
  auto next_sample = Clock::now() + kBetweenSamples, last_progress = Clock::now();
  MachineLoad load;
  auto pause = std::chrono::milliseconds(500);
  for (bool told = false; !given_up_;) {
    MlflowSender::Outcome outcome = MlflowSender::Outcome::unreachable;
    std::string why;
    try {
      outcome = sender_.send_some();
      why = sender_.why();
    } catch (const std::exception& e) {
      why = e.what();
    }
    if (given_up_) return;
    for (const std::string& complaint : sender_.take_complaints())
      log::warn("MLflow: {}; not sent again", complaint);
    const bool away =
        outcome == MlflowSender::Outcome::unreachable || outcome == MlflowSender::Outcome::refused;
    if (away && !std::exchange(told, true))
      log::warn("MLflow: {}; the run goes on, and what is measured waits in {}", why,
                outbox_.path().string());
    if (!away) told = false;
    if (outcome == MlflowSender::Outcome::sent) {
      last_progress = Clock::now();
      pause = std::chrono::milliseconds(500);
      continue;
    }
    std::unique_lock lock(mutex_);
    const int64_t size = outbox_.size();
    if (ending_ && (!away || Clock::now() - last_progress > kPatience)) return;
    if (away) {
      if (ending_)
        changed_.wait_for(lock, std::chrono::milliseconds(500), [&] { return given_up_.load(); });
      else
        changed_.wait_for(lock, pause, [&] { return ending_; });
      pause = std::min(2 * pause, std::chrono::milliseconds(kLongestPause));
    } else {
      last_progress = Clock::now();
      changed_.wait_until(lock, next_sample, [&] { return ending_ || outbox_.size() != size; });
    }
    if (ending_ || Clock::now() < next_sample) continue;
    lock.unlock();
    next_sample = Clock::now() + kBetweenSamples;
    try {
      sample(load);
    } catch (const std::exception& e) {
      log::warn("{}", e.what());
    }
  }
}

void MlflowSink::sample(MachineLoad& load) {
  json metrics = json::object();
  for (const auto& [name, value] : load.now()) metrics["system/" + name] = value;
  append({{"metrics", metrics}, {"step", samples_++}, {"time", now_ms()}});
}

}  // namespace capstan
