#include "report/trackers/mlflow.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "tensor/nvml.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kTimeout = 10;  // seconds without a byte
constexpr size_t kMostMetrics = 1000, kMostParams = 100, kLongestParam = 6000;
constexpr auto kBetweenSamples = std::chrono::seconds(10);
constexpr auto kLongestPause = std::chrono::seconds(30), kPatience = std::chrono::seconds(10);

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_id() {
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

ProcessorTicks processor_ticks() {
  std::ifstream file("/proc/stat");
  std::string word;
  ProcessorTicks ticks;
  double value = 0;
  file >> word;
  for (int i = 0; i < 8 && file >> value; ++i) {
    ticks.total += value;
    if (i == 3 || i == 4) ticks.idle += value;
  }
  return ticks;
}

struct Megabytes {
  double total = 0, available = 0;
};
Megabytes memory_megabytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  double value = 0;
  Megabytes memory;
  while (file >> key >> value && std::getline(file, unit)) {
    if (key == "MemTotal:") memory.total = 1024 * value / 1e6;  // it counts in KiB
    if (key == "MemAvailable:") memory.available = 1024 * value / 1e6;
  }
  return memory;
}

// Without what a killed process wrote of its last line.
fs::path whole_lines(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return file;
  const std::string text = read_text(file, std::numeric_limits<int64_t>::max());
  if (const size_t end = text.rfind('\n') + 1; end < text.size()) fs::resize_file(file, end);
  return file;
}

// What a resumed run computes again, bit for bit: not the times.
std::string certain_part(json metrics) {
  metrics.erase("iter_time");
  return metrics.dump();
}

}  // namespace

MlflowAccess mlflow_access() {
  MlflowAccess access{.uri = environment_value("MLFLOW_TRACKING_URI"), .user = {}, .token = {}};
  if (access.uri.empty()) access.uri = "http://127.0.0.1:5000";
  require(access.uri.starts_with("http://") || access.uri.starts_with("https://"), Fault::usage,
          "MLFLOW_TRACKING_URI: expected the URL of a server such as http://127.0.0.1:5000, found "
          "'{}'; 'mlflow server' starts one",
          access.uri);
  while (access.uri.ends_with('/')) access.uri.pop_back();
  const std::string name = environment_value("MLFLOW_TRACKING_USERNAME");
  if (!name.empty()) access.user = name + ":" + environment_value("MLFLOW_TRACKING_PASSWORD");
  access.token = environment_value("MLFLOW_TRACKING_TOKEN");
  return access;
}

struct MlflowSender::State {
  std::string experiment, run, artifacts;
  int64_t sent = 0;  // bytes of the outbox
};

MlflowSender::MlflowSender(fs::path folder, MlflowAccess access)
    : folder_(std::move(folder)),
      access_(std::move(access)),
      http_(kTimeout),
      state_(std::make_unique<State>()) {
  const fs::path file = folder_ / "state.json";
  std::error_code error;
  if (!fs::exists(file, error)) return;
  const json saved = json::parse(read_text(file, 1 << 20), nullptr, false);
  if (!saved.is_object()) return;  // everything is sent again, and stored once
  state_->experiment = saved.value("experiment", "");
  state_->run = saved.value("run", "");
  state_->artifacts = saved.value("artifacts", "");
  state_->sent = saved.value("sent", int64_t{0});
  // After a power cut the outbox may be shorter: everything is sent again.
  std::ifstream outbox(folder_ / "outbox.jsonl", std::ios::binary);
  outbox.seekg(std::max<int64_t>(0, state_->sent - 1));
  if (state_->sent > 0 && outbox.get() != '\n') state_->sent = 0;
}
MlflowSender::~MlflowSender() = default;

void MlflowSender::save() const {
  GrowingFile(folder_ / "outbox.jsonl").sync();  // what has arrived must not vanish here
  const json state{{"experiment", state_->experiment},
                   {"run", state_->run},
                   {"artifacts", state_->artifacts},
                   {"sent", state_->sent}};
  write_text(folder_ / "state.json", state.dump() + "\n");
}

// Those that have not arrived, as many as one batch may have; the last may still be written.
std::vector<std::string> MlflowSender::next_lines() const {
  std::ifstream file(folder_ / "outbox.jsonl", std::ios::binary);
  file.seekg(state_->sent);
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < kMostParams && std::getline(file, line) && !file.eof())
    lines.push_back(line);
  return lines;
}

int64_t MlflowSender::waiting() const {
  std::ifstream file(folder_ / "outbox.jsonl", std::ios::binary);
  file.seekg(state_->sent);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

// The answer, if it says that the request was served; else notes what is wrong. What the server
// rejects for good is told and not sent again: nothing is returned, and there is no trouble.
std::optional<HttpAnswer> MlflowSender::judged(HttpAnswer answer, const std::string& what) {
  if (answer.status == 200) return answer;
  const bool for_now =
      answer.status == 0 || answer.status == 408 || answer.status == 429 || answer.status >= 500;
  why_ = answer.status == 0
             ? answer.failure
             : fmt::format("{} answers {}: {}", what, answer.status, answer.body.substr(0, 300));
  if (answer.status == 401 || answer.status == 403) {
    trouble_ = Outcome::refused;
  } else if (for_now) {
    trouble_ = Outcome::unreachable;
  } else {
    complaints_.push_back(why_);
  }
  return std::nullopt;
}

std::optional<HttpAnswer> MlflowSender::ask(const std::string& path, const json& body) {
  HttpRequest request{.url = access_.uri + "/api/2.0/mlflow/" + path,
                      .token = access_.token,
                      .user = access_.user,
                      .json = body.dump(-1, ' ', false, json::error_handler_t::replace)};
  HttpAnswer answer = http_.send(request);
  // An experiment of that name, made by another run.
  if (answer.status == 400 && answer.body.find("RESOURCE_ALREADY_EXISTS") != std::string::npos)
    return answer;
  return judged(std::move(answer), path);
}

// Looks for the run before it makes one: the answer to an earlier request may have been lost.
bool MlflowSender::begin_run(const json& run) {
  const auto parsed = [](const HttpAnswer& answer) {
    return json::parse(answer.body, nullptr, false);
  };
  if (state_->experiment.empty()) {
    const std::string project = run.at("project");
    const auto made = ask("experiments/create", {{"name", project}});
    if (!made) return false;
    if (made->status == 200) {
      state_->experiment = parsed(*made).value("experiment_id", "");
    } else {
      const HttpRequest by_name{.url = access_.uri +
                                       "/api/2.0/mlflow/experiments/get-by-name?experiment_name=" +
                                       percent_encoded(project, "-._~"),
                                .token = access_.token,
                                .user = access_.user};
      const auto found = judged(http_.send(by_name), "experiments/get-by-name");
      if (!found) return false;
      state_->experiment =
          parsed(*found).value("experiment", json::object()).value("experiment_id", "");
    }
    if (state_->experiment.empty()) {
      why_ = fmt::format(
          "the experiment '{}' cannot be made or found; it may be deleted: choose another with "
          "log.project",
          project);
      return false;
    }
  }
  const auto take = [&](const json& info) {
    state_->run = info.value("run_id", "");
    const std::string uri = info.value("artifact_uri", "");
    constexpr std::string_view kProxied = "mlflow-artifacts:/";
    if (uri.starts_with(kProxied)) state_->artifacts = uri.substr(kProxied.size());
  };
  const std::string id = run.at("id");
  const auto found = ask("runs/search", {{"experiment_ids", {state_->experiment}},
                                         {"filter", fmt::format("tags.capstan_id = '{}'", id)},
                                         {"max_results", 1}});
  if (!found) return false;
  const json runs = parsed(*found).value("runs", json::array());
  if (!runs.empty()) {
    take(runs[0].at("info"));
  } else {
    json tags = {{{"key", "capstan_id"}, {"value", id}},
                 {{"key", "mlflow.source.name"}, {"value", "capstan"}},
                 {{"key", "mlflow.source.type"}, {"value", "LOCAL"}}};
    if (const std::string group = run.value("group", ""); !group.empty())
      tags.push_back({{"key", "group"}, {"value", group}});
    const auto made = ask("runs/create", {{"experiment_id", state_->experiment},
                                          {"run_name", run.at("name")},
                                          {"start_time", run.at("time")},
                                          {"tags", tags}});
    if (!made) return false;
    take(parsed(*made).value("run", json::object()).value("info", json::object()));
  }
  while (state_->artifacts.starts_with('/')) state_->artifacts.erase(0, 1);
  save();
  json params = json::array();
  const auto flush = [&] {
    const bool ok = params.empty() ||
                    ask("runs/log-batch", {{"run_id", state_->run}, {"params", params}}) ||
                    trouble_ == Outcome::nothing;
    params.clear();
    return ok;
  };
  for (const auto& [key, value] : run.at("params").items()) {
    params.push_back({{"key", key}, {"value", std::string(value).substr(0, kLongestParam)}});
    if (params.size() == kMostParams && !flush()) return false;
  }
  return flush();
}

bool MlflowSender::send_metrics(const std::vector<json>& records) {
  json metrics = json::array();
  const auto flush = [&] {
    const bool ok = metrics.empty() ||
                    ask("runs/log-batch", {{"run_id", state_->run}, {"metrics", metrics}}) ||
                    trouble_ == Outcome::nothing;
    metrics.clear();
    return ok;
  };
  for (const json& record : records)
    for (const auto& [key, value] : record.at("metrics").items()) {
      metrics.push_back({{"key", key},
                         {"value", value},
                         {"timestamp", record.at("time")},
                         {"step", record.at("step")}});
      if (metrics.size() == kMostMetrics && !flush()) return false;
    }
  return flush();
}

bool MlflowSender::send_file(const json& record) {
  // Of the run's folder, wherever that is now.
  const fs::path file = (folder_ / std::string(record.at("file"))).lexically_normal();
  std::error_code error;
  if (!fs::is_regular_file(file, error) || !lies_in(file, folder_ / "../../..")) {
    complaints_.push_back(
        fmt::format("{}: is not there, or not in the run's folder", file.string()));
    return true;
  }
  if (state_->artifacts.empty()) {
    complaints_.push_back(
        fmt::format("{} is not stored: the server keeps artifacts elsewhere", file.string()));
    return true;
  }
  const HttpRequest request{
      .url = fmt::format("{}/api/2.0/mlflow-artifacts/artifacts/{}/{}", access_.uri,
                         state_->artifacts, std::string(record.at("as"))),
      .token = access_.token,
      .user = access_.user,
      .file = file};
  return judged(http_.send(request), "the server's store of artifacts") ||
         trouble_ == Outcome::nothing;
}

MlflowSender::Outcome MlflowSender::send_some() {
  trouble_ = Outcome::nothing;
  const std::vector<std::string> lines = next_lines();
  if (lines.empty()) return Outcome::nothing;
  int64_t bytes = 0;
  std::vector<json> metrics;
  try {
    for (const std::string& line : lines) {
      const json record = json::parse(line, nullptr, false);
      const bool measured = record.is_object() && record.contains("metrics");
      if (!measured && !metrics.empty()) break;  // in their order
      if (measured) {
        metrics.push_back(record);
        bytes += std::ssize(line) + 1;
        continue;
      }
      bool done = true;
      if (record.is_object() && record.contains("run"))
        done = begin_run(record.at("run"));
      else if (record.is_object() && record.contains("file"))
        done = send_file(record);
      else if (record.is_object() && record.contains("status")) {
        json update{{"run_id", state_->run}, {"status", record.at("status")}};
        if (record.at("status") != "RUNNING") update["end_time"] = record.at("time");
        done = ask("runs/update", update).has_value() || trouble_ == Outcome::nothing;
      }
      if (!done && trouble_ == Outcome::nothing) {  // there is no run to send to: tried again later
        complaints_.clear();
        return Outcome::refused;
      }
      if (!done) return trouble_;
      bytes += std::ssize(line) + 1;
      break;
    }
    if (!metrics.empty() && !send_metrics(metrics)) return trouble_;
  } catch (const json::exception& e) {
    why_ = fmt::format("the server answers something unexpected: {}", e.what());
    return Outcome::unreachable;
  }
  state_->sent += bytes;
  save();
  return Outcome::sent;
}

MlflowSink::MlflowSink(const fs::path& folder, const RunLabels& labels)
    : outbox_(whole_lines(folder / "outbox.jsonl")), sender_(folder, mlflow_access()) {
  std::ifstream file(outbox_.path(), std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const json record = json::parse(line, nullptr, false);
    if (record.is_object() && record.contains("metrics"))
      earlier_.emplace(record.value("step", int64_t{0}), certain_part(record["metrics"]));
  }
  if (outbox_.size() > 0) {
    append({{"status", "RUNNING"}, {"time", now_ms()}});
  } else {
    json params = json::object();
    for (const auto& [key, value] : labels.params) params[key] = value;
    append({{"run",
             {{"id", random_id()},
              {"project", labels.project},
              {"name", labels.run},
              {"group", labels.group},
              {"time", now_ms()},
              {"params", params}}}});
  }
  thread_ = std::thread([this] { run(); });
}

MlflowSink::~MlflowSink() {
  finish(RunEnd::failed, {});
}

void MlflowSink::append(const json& record) {
  const std::lock_guard lock(mutex_);
  outbox_.append(record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  changed_.notify_one();
}

void MlflowSink::write(const MetricsRow& row) {
  json metrics = json::object();
  for (const auto& [key, value] : named_values(row)) metrics[key] = number(value);
  if (earlier_.contains({row.step, certain_part(metrics)})) return;
  append({{"metrics", metrics}, {"step", row.step}, {"time", now_ms()}});
}

void MlflowSink::finish(RunEnd end, std::span<const fs::path> files) {
  if (!thread_.joinable()) return;
  try {
    for (const fs::path& file : files)
      append({{"file", fs::proximate(file, outbox_.path().parent_path()).string()},
              {"as", file.filename().string()}});
    append({{"status", status_of(end)}, {"time", now_ms()}});
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
  if (const int64_t waiting = sender_.waiting(); waiting > 0)
    log::warn("MLflow: {} waiting in {}; 'capstan sync {}' sends them when the server answers",
              count(waiting, "record"), outbox_.path().string(),
              outbox_.path().parent_path().string());
}

// The thread that sends.
void MlflowSink::run() {
  auto next_sample = Clock::now() + kBetweenSamples, last_progress = Clock::now();
  ProcessorTicks ticks = processor_ticks();
  const Nvml cards;
  auto pause = std::chrono::milliseconds(500);
  for (bool told = false;;) {
    MlflowSender::Outcome outcome = MlflowSender::Outcome::unreachable;
    std::string why;
    try {
      outcome = sender_.send_some();
      why = sender_.why();
    } catch (const Error& e) {
      why = e.what();
    }
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
        changed_.wait_for(lock, std::chrono::milliseconds(500));
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
      sample_machine(ticks, cards);
    } catch (const Error& e) {
      log::warn("{}", e.what());
    }
  }
}

// Under the names that MLflow's own client uses.
void MlflowSink::sample_machine(ProcessorTicks& ticks, const Nvml& cards) {
  const auto now = processor_ticks();
  const double passed = now.total - ticks.total, idle = now.idle - ticks.idle;
  ticks = now;
  const auto [total, available] = memory_megabytes();
  json metrics = json::object();
  if (passed > 0) metrics["system/cpu_utilization_percentage"] = 100 * (1 - idle / passed);
  if (total > 0) {
    metrics["system/system_memory_usage_megabytes"] = total - available;
    metrics["system/system_memory_usage_percentage"] = 100 * (1 - available / total);
  }
  for (int card = 0; card < cards.count(); ++card) {
    const GpuReading reading = cards.read(card, false);
    const std::string gpu = fmt::format("system/gpu_{}_", card);
    if (reading.busy) metrics[gpu + "utilization_percentage"] = 100 * *reading.busy;
    if (reading.watts) metrics[gpu + "power_usage_watts"] = *reading.watts;
    if (!reading.memory) continue;
    const auto used = static_cast<double>(reading.memory->used);
    metrics[gpu + "memory_usage_megabytes"] = used / 1e6;
    metrics[gpu + "memory_usage_percentage"] =
        100 * used / static_cast<double>(std::max<int64_t>(1, reading.memory->total));
  }
  append({{"metrics", metrics}, {"step", samples_++}, {"time", now_ms()}});
}

}  // namespace capstan
