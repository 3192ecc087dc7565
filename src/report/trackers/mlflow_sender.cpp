#include "report/trackers/mlflow_sender.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/url.h"
#include "report/growing_file.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTimeout = 10;  // seconds without a byte
constexpr size_t kMostLines = 100;
constexpr size_t kMostMetrics = 1000, kMostParams = 100, kLongestParam = 6000;

}  // namespace

MlflowAccess mlflow_access() {
  MlflowAccess access{.uri = environment_value("MLFLOW_TRACKING_URI"), .user = {}, .token = {}};
  if (access.uri.empty()) access.uri = "http://127.0.0.1:5000";
  require(access.uri.starts_with("http://") || access.uri.starts_with("https://"), Fault::usage,
          "MLFLOW_TRACKING_URI: expected the URL of a server such as http://127.0.0.1:5000, found "
          "'{}'; 'mlflow server' starts one",
          without_password(access.uri));
  while (access.uri.ends_with('/')) access.uri.pop_back();
  const std::string name = environment_value("MLFLOW_TRACKING_USERNAME");
  if (!name.empty()) access.user = name + ":" + environment_value("MLFLOW_TRACKING_PASSWORD");
  access.token = environment_value("MLFLOW_TRACKING_TOKEN");
  return access;
}

MlflowSender::MlflowSender(fs::path folder, MlflowAccess access, std::function<bool()> stopped)
    : folder_(std::move(folder)),
      access_(std::move(access)),
      http_(kTimeout, std::move(stopped)),
      state_(read_outbox_state(folder_)) {}

void MlflowSender::save() const {
  GrowingFile(outbox_in(folder_)).sync();  // what has arrived must not vanish here
  write_outbox_state(folder_, state_);
}

// Those that have not arrived, as many as one batch may have; the last may still be written.
std::vector<std::string> MlflowSender::next_lines() const {
  std::ifstream file(outbox_in(folder_), std::ios::binary);
  file.seekg(state_.sent);
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < kMostLines && std::getline(file, line) && !file.eof())
    lines.push_back(line);
  return lines;
}

int64_t MlflowSender::waiting() const {
  std::ifstream file(outbox_in(folder_), std::ios::binary);
  file.seekg(state_.sent);
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
  const auto parsed = [](const HttpAnswer& answer) { return json_or_null(answer.body); };
  if (state_.experiment.empty()) {
    const std::string project = run.at("project");
    const auto made = ask("experiments/create", {{"name", project}});
    if (!made) return false;
    if (made->status == 200) {
      state_.experiment = parsed(*made).value("experiment_id", "");
    } else {
      const HttpRequest by_name{.url = access_.uri +
                                       "/api/2.0/mlflow/experiments/get-by-name?experiment_name=" +
                                       percent_encoded(project, "-._~"),
                                .token = access_.token,
                                .user = access_.user};
      const auto found = judged(http_.send(by_name), "experiments/get-by-name");
      if (!found) return false;
      state_.experiment =
          parsed(*found).value("experiment", json::object()).value("experiment_id", "");
    }
    if (state_.experiment.empty()) {
      why_ = fmt::format(
          "the experiment '{}' cannot be made or found; it may be deleted: choose another with "
          "log.project",
          project);
      return false;
    }
  }
  const auto take = [&](const json& info) {
    state_.run = info.value("run_id", "");
    const std::string uri = info.value("artifact_uri", "");
    constexpr std::string_view kProxied = "mlflow-artifacts:/";
    if (uri.starts_with(kProxied)) state_.artifacts = uri.substr(kProxied.size());
  };
  if (state_.id.empty()) state_.id = run.at("id");
  const std::string& id = state_.id;
  const auto found = ask("runs/search", {{"experiment_ids", {state_.experiment}},
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
    const auto made = ask("runs/create", {{"experiment_id", state_.experiment},
                                          {"run_name", run.at("name")},
                                          {"start_time", run.at("time")},
                                          {"tags", tags}});
    if (!made) return false;
    take(parsed(*made).value("run", json::object()).value("info", json::object()));
  }
  while (state_.artifacts.starts_with('/')) state_.artifacts.erase(0, 1);
  save();
  std::vector<json> params;
  for (const auto& [key, value] : run.at("params").items())
    params.push_back({{"key", key}, {"value", std::string(value).substr(0, kLongestParam)}});
  return send_batches("params", params, kMostParams);
}

// Each of at most so many entries. What the server rejects is not sent again.
bool MlflowSender::send_batches(const char* kind, std::span<const json> entries, size_t most) {
  while (!entries.empty()) {
    const auto some = entries.first(std::min(most, entries.size()));
    entries = entries.subspan(some.size());
    const json batch{{"run_id", state_.run}, {kind, std::vector<json>(some.begin(), some.end())}};
    if (!ask("runs/log-batch", batch) && trouble_ != Outcome::nothing) return false;
  }
  return true;
}

bool MlflowSender::send_metrics(std::span<const json> records) {
  std::vector<json> metrics;
  for (const json& record : records)
    for (const auto& [key, value] : record.at("metrics").items())
      metrics.push_back({{"key", key},
                         {"value", value},
                         {"timestamp", record.at("time")},
                         {"step", record.at("step")}});
  return send_batches("metrics", metrics, kMostMetrics);
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
  if (state_.artifacts.empty()) {
    complaints_.push_back(
        fmt::format("{} is not stored: the server keeps artifacts elsewhere", file.string()));
    return true;
  }
  const HttpRequest request{
      .url = fmt::format("{}/api/2.0/mlflow-artifacts/artifacts/{}/{}", access_.uri,
                         state_.artifacts, std::string(record.at("as"))),
      .token = access_.token,
      .user = access_.user,
      .file = file};
  return judged(http_.send(request), "the server's store of artifacts") ||
         trouble_ == Outcome::nothing;
}

// A record that is not of metrics, which go together. False: tried again later.
bool MlflowSender::send_record(const json& record, OutboxRecord kind) {
  if (kind == OutboxRecord::run) return begin_run(record.at("run"));
  if (kind == OutboxRecord::file) return send_file(record);
  json update{{"run_id", state_.run}, {"status", record.at("status")}};
  if (record.at("status") != "RUNNING") update["end_time"] = record.at("time");
  return ask("runs/update", update).has_value() || trouble_ == Outcome::nothing;
}

MlflowSender::Outcome MlflowSender::send_some() {
  trouble_ = Outcome::nothing;
  const std::vector<std::string> lines = next_lines();
  if (lines.empty()) return Outcome::nothing;
  int64_t bytes = 0;
  std::vector<json> metrics;
  std::vector<std::string> skipped;
  try {
    for (const std::string& line : lines) {
      const json record = outbox_record(line);
      const auto kind = outbox_kind(record);
      if (!kind) {
        skipped.push_back(fmt::format("{}: byte {}: is no record of a run",
                                      outbox_in(folder_).string(), state_.sent + bytes));
        bytes += std::ssize(line) + 1;
        continue;
      }
      if (kind != OutboxRecord::run && state_.run.empty()) {
        why_ = fmt::format(
            "{} lacks the record of its run; to send the rest, resume the run with --resume auto",
            outbox_in(folder_).string());
        return Outcome::refused;
      }
      if (kind == OutboxRecord::metrics) {
        metrics.push_back(record);
        bytes += std::ssize(line) + 1;
        continue;
      }
      if (!metrics.empty()) break;  // in their order
      if (!send_record(record, *kind)) {
        if (trouble_ != Outcome::nothing) return trouble_;
        complaints_.clear();  // there is no run to send to
        return Outcome::refused;
      }
      bytes += std::ssize(line) + 1;
      break;
    }
    if (!metrics.empty() && !send_metrics(metrics)) return trouble_;
  } catch (const json::exception& e) {
    why_ = fmt::format("the server answers something unexpected: {}", e.what());
    return Outcome::unreachable;
  }
  complaints_.insert(complaints_.end(), skipped.begin(), skipped.end());
  state_.sent += bytes;
  save();
  return Outcome::sent;
}

}  // namespace capstan
