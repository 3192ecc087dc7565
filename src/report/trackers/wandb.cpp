#include "report/trackers/wandb.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "report/crc32.h"
#include "report/protobuf.h"
#include "report/trackers/wandb_upload.h"

namespace capstan {

using namespace protobuf;

namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 32 << 10, kChunkHeader = 7;
// Fields of a Record.
constexpr uint32_t kHistory = 2, kRun = 17, kExit = 18, kHeader = 21;
constexpr uint32_t kValueJson = 16;  // of an item

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_id() {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
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

// Appends a record to `to`, which comes at this place of the file.
void put_chunks(std::string& to, int64_t place, std::string_view record) {
  const auto left_in_block = [&] {
    return kBlock - (static_cast<size_t>(place) + to.size()) % kBlock;
  };
  for (bool first = true, more = true; more; first = false) {
    if (left_in_block() < kChunkHeader) to.append(left_in_block(), '\0');
    const size_t left = left_in_block();
    const std::string_view data = record.substr(0, left - kChunkHeader);
    record.remove_prefix(data.size());
    more = !record.empty();
    const char type = first ? (more ? 2 : 1) : (more ? 3 : 4);
    const std::string checked = std::string(1, type) + std::string(data);
    put_fixed(to, crc32(checked));
    put_fixed(to, static_cast<uint16_t>(data.size()));
    to += checked;
  }
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
    if (it->path().filename().string().starts_with("offline-run-"))
      newest = std::max(newest, it->path());
  return newest;
}

}  // namespace

WandbSink::WandbSink(const fs::path& folder, const RunLabels& labels, std::optional<int64_t> step) {
  const fs::path earlier = run_in(folder);
  if (step && fs::exists(earlier / "index"))
    resume(earlier, *step);
  else
    begin(folder, labels);
}

WandbSink::~WandbSink() {
  try {
    finish(RunEnd::failed, {});
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
}

void WandbSink::begin(const fs::path& folder, const RunLabels& labels) {
  const std::string id = random_id();
  start_ = wall_time();
  const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const fs::path run =
      folder / fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}", fmt::localtime(seconds), id);
  fs::create_directories(run / "files");
  fs::create_directories(run / "logs");
  file_ = std::make_unique<GrowingFile>(run / fmt::format("run-{}.wandb", id));
  index_ = std::make_unique<GrowingFile>(run / "index");
  std::string magic = ":W&B";
  put_fixed(magic, uint16_t{0xBEE1});
  magic += '\0';
  file_->append(magic);
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
  std::ifstream lines(run / "index");
  std::string kept;
  int64_t row = 0, end = 0, last = 0;
  double start = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    std::istringstream words(line);
    words >> row >> end;
    if (kept.empty()) words >> start;
    if (row > step) break;
    kept += line + "\n";
    last = end;
    last_step_ = row;
    ++records_;
  }
  start_ = start;
  const std::string id = run.filename().string().substr(run.filename().string().rfind('-') + 1);
  const fs::path file = run / fmt::format("run-{}.wandb", id);
  require(fs::exists(file) && static_cast<int64_t>(fs::file_size(file)) >= last, Fault::file,
          "{}: expected the {} bytes of an earlier part of this run; remove {} to start another "
          "one for W&B",
          file.string(), last, run.string());
  fs::resize_file(file, static_cast<uintmax_t>(last));
  write_text(run / "index", kept);
  file_ = std::make_unique<GrowingFile>(file);
  index_ = std::make_unique<GrowingFile>(run / "index");
}

void WandbSink::append(uint32_t field, std::string_view message) {
  std::string record;
  put_varint(record, 1, ++records_);
  put_bytes(record, field, message);
  std::string chunks;
  put_chunks(chunks, file_->size(), record);
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
  row_time_ = wall_time();
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
  put_varint(message, 2, static_cast<uint64_t>(wall_time() - start_));
  append(kExit, message);
  file_->sync();
  const fs::path run = file_->path().parent_path();
  constexpr double kPatience = 600;
  // A run that was stopped, or failed, has to end now.
  if (end == RunEnd::finished && environment_value("WANDB_MODE") == "online") {
    log::say("W&B: uploading the run ...");
    const std::string why = upload_wandb(run, kPatience);
    if (why.empty()) return log::say("W&B: the run is uploaded");
    log::warn("W&B: {}", why);
  }
  log::say("W&B: to upload the run: wandb sync '{}'", run.string());
}

}  // namespace capstan
