#include "report/trackers/wandb.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "base/text.h"
#include "report/protobuf.h"
#include "report/put_aside.h"
#include "report/trackers/wandb_file.h"
#include "report/trackers/wandb_upload.h"

namespace capstan {

using namespace protobuf;

namespace {

namespace fs = std::filesystem;

// Fields of a Record.
constexpr uint32_t kHistory = 2, kRun = 17, kExit = 18, kHeader = 21;
constexpr uint32_t kValueJson = 16;  // of an item

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Of an id.
constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";

std::string random_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 8; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

std::string json_of(double value) {
  if (std::isnan(value)) return "NaN";  // as Python's json writes and reads it
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string item(std::string_view key, std::string_view value_json) {
  std::string message;
  put_bytes(message, 1, key);
  put_bytes(message, kValueJson, value_json);
  return message;
}

std::string timestamp(double seconds) {
  std::string message;
  put_varint(message, 1, static_cast<uint64_t>(seconds));
  put_varint(message, 2, static_cast<uint64_t>((seconds - std::floor(seconds)) * 1e9));
  return message;
}

// The folder of the run in it, if there is one.
fs::path run_in(const fs::path& folder) {
  std::error_code error;
  fs::path newest;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with("offline-run-") && !is_put_aside(it->path()))
      newest = std::max(newest, it->path());
  return newest;
}

// "offline-run-TIME-ID" to ID; a name of other letters has none.
std::string id_of(const fs::path& run) {
  const std::string name = run.filename().string();
  const std::string id = name.substr(name.rfind('-') + 1);
  return id.find_first_not_of(kLetters) == std::string::npos ? id : "";
}

}  // namespace

WandbSink::WandbSink(const fs::path& folder, const RunLabels& labels, std::optional<int64_t> step) {
  const fs::path earlier = run_in(folder);
  if (!step || earlier.empty()) {
    begin(folder, labels, random_id());
    return;
  }
  try {
    resume(earlier, *step);
  } catch (const Error& e) {
    log::warn("W&B: {}; its file is written anew, and {} keeps this one", e.what(),
              put_aside(earlier).string());
    const std::string id = id_of(earlier);
    begin(folder, labels, id.empty() ? random_id() : id);
  }
}

WandbSink::~WandbSink() {
  try {
    finish(RunEnd::failed, {});
    deliver({});
  } catch (const std::exception& e) {
    log::warn("W&B: {}", e.what());
  }
}

void WandbSink::begin(const fs::path& folder, const RunLabels& labels, const std::string& id) {
  start_ = unix_time();
  const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const fs::path run =
      folder / fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}", fmt::localtime(seconds), id);
  fs::create_directories(run / "files");
  fs::create_directories(run / "logs");
  file_ = std::make_unique<GrowingFile>(run / fmt::format("run-{}.wandb", id));
  index_ = std::make_unique<GrowingFile>(run / "index");
  file_->append(wandb_file_begin());
  std::string version, header;
  put_bytes(version, 1, "0.16.0");
  put_bytes(version, 2, "0.12.0");
  put_bytes(header, 1, version);
  append(kHeader, header);
  std::string config;
  for (const auto& [key, value] : labels.params) put_bytes(config, 1, item(key, json_text(value)));
  std::string message;
  put_bytes(message, 1, id);
  put_bytes(message, 3, labels.project);
  put_bytes(message, 4, config);
  if (!labels.group.empty()) put_bytes(message, 6, labels.group);
  put_bytes(message, 8, labels.run);
  put_bytes(message, 17, timestamp(start_));
  append(kRun, message);
  index_->append(fmt::format("{} {} {:.3f}\n", -1, file_->size(), start_));
}

// Cuts the file after the last row of that step or an earlier one.
void WandbSink::resume(const fs::path& run, int64_t step) {
  const WandbIndex index = read_wandb_index(run / "index", step);
  const fs::path file = run / fmt::format("run-{}.wandb", id_of(run));
  const std::string bytes = read_text(file, std::numeric_limits<int64_t>::max());
  require(std::ssize(bytes) >= index.end, Fault::file,
          "{}: expected the {} bytes of an earlier part of this run, found {}", file.string(),
          index.end, bytes.size());
  const auto kept = std::string_view(bytes).substr(0, static_cast<size_t>(index.end));
  const std::vector<int64_t> ends = wandb_record_ends(kept, file.string());
  require(!ends.empty() && ends.back() == index.end, Fault::file,
          "{}: expected the end of a record after {} bytes", file.string(), index.end);
  fs::resize_file(file, static_cast<uintmax_t>(index.end));
  write_text(run / "index", index.text);
  file_ = std::make_unique<GrowingFile>(file);
  index_ = std::make_unique<GrowingFile>(run / "index");
  start_ = index.start;
  last_step_ = index.last_step;
  records_ = ends.size();
}

void WandbSink::append(uint32_t field, std::string_view message) {
  std::string record;
  put_varint(record, 1, ++records_);
  put_bytes(record, field, message);
  std::string chunks;
  put_wandb_record(chunks, file_->size(), record);
  file_->append(chunks);
}

void WandbSink::write(const MetricsRow& row) {
  const std::lock_guard lock(mutex_);
  if (row_ && row_->step != row.step) append_row();
  if (row_) {  // the rest of a step
    if (row.val_loss) row_->val_loss = row.val_loss;
    return;
  }
  row_ = row;
  row_time_ = unix_time();
}

void WandbSink::catch_up(std::span<const MetricsRow> rows) {
  const int64_t last = last_step_;
  for (const MetricsRow& row : rows)
    if (row.step > last) write(row);
}

void WandbSink::append_row() {
  if (!row_) return;
  std::string history;
  for (const auto& [key, value] : named_values(*row_))
    put_bytes(history, 1, item(key, json_of(value)));
  put_bytes(history, 1, item("_step", std::to_string(row_->step)));
  put_bytes(history, 1, item("_timestamp", json_of(row_time_)));
  put_bytes(history, 1, item("_runtime", json_of(row_time_ - start_)));
  std::string number;
  put_varint(number, 1, static_cast<uint64_t>(row_->step));
  put_bytes(history, 2, number);
  append(kHistory, history);
  index_->append(fmt::format("{} {}\n", row_->step, file_->size()));
  last_step_ = row_->step;
  row_.reset();
}

void WandbSink::sync() {
  const std::lock_guard lock(mutex_);
  file_->sync();
  index_->sync();
}

void WandbSink::finish(RunEnd end, std::span<const fs::path>) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  append_row();
  std::string message;
  put_varint(message, 1, end == RunEnd::finished ? 0 : 1);
  put_varint(message, 2, static_cast<uint64_t>(std::max(0.0, unix_time() - start_)));
  append(kExit, message);
  file_->sync();
  end_ = end;
}

bool WandbSink::deliver(const StopAsked& stopped) {
  if (!end_) return true;
  const fs::path run = file_->path().parent_path();
  constexpr double kPatience = 600;
  // A run that was stopped, or failed, has to end now.
  const bool online =
      *std::exchange(end_, {}) == RunEnd::finished && environment_value("WANDB_MODE") == "online";
  if (online) {
    log::say("W&B: uploading the run (Ctrl-C ends the wait) ...");
    const std::string why = upload_wandb(run, kPatience, stopped);
    if (why.empty()) {
      log::say("W&B: the run is uploaded");
      return true;
    }
    log::warn("W&B: {}", why);
  }
  log::say("W&B: to upload the run: wandb sync {}", in_shell(run.string()));
  return !(online && stopped && stopped());
}

}  // namespace capstan
