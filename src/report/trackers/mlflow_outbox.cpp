#include "report/trackers/mlflow_outbox.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "report/crc32.h"
#include "report/put_aside.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMostState = 1 << 16;

bool is_id(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
}

bool has_text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string();
}
bool has_whole(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer();
}

bool is_run(const json& run) {
  if (!run.is_object() || !has_whole(run, "time") || !run.contains("params")) return false;
  for (const char* key : {"id", "project", "name"})
    if (!has_text(run, key)) return false;
  if (run.contains("group") && !has_text(run, "group")) return false;
  const json& params = run["params"];
  return is_id(run["id"]) && params.is_object() &&
         std::all_of(params.begin(), params.end(), [](const json& v) { return v.is_string(); });
}

bool is_measure(const json& value) {
  return value.is_number() || value == "NaN" || value == "Infinity" || value == "-Infinity";
}

bool is_metrics(const json& r) {
  const json& metrics = r["metrics"];
  return metrics.is_object() && has_whole(r, "step") && has_whole(r, "time") &&
         std::all_of(metrics.begin(), metrics.end(), is_measure);
}

bool is_file(const json& r) {
  if (!has_text(r, "file") || !has_text(r, "as")) return false;
  const std::string name = r["as"];
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

bool is_status(const json& r) {
  constexpr std::array<std::string_view, 4> kWords = {"RUNNING", "FINISHED", "KILLED", "FAILED"};
  return has_text(r, "status") && has_whole(r, "time") &&
         std::find(kWords.begin(), kWords.end(), r["status"].get<std::string>()) != kWords.end();
}

json json_of(const OutboxState& s) {
  return {{"id", s.id},
          {"experiment", s.experiment},
          {"run", s.run},
          {"artifacts", s.artifacts},
          {"sent", s.sent}};
}

std::string sum_of(const json& state) {
  return fmt::format("{:08x}", crc32(state.dump(-1, ' ', false, json::error_handler_t::replace)));
}

// Throws Fault::file for what write_outbox_state did not write.
OutboxState parse_state(const std::string& text, const std::string& where) {
  const json saved = parse_json(text, where);
  const auto check = [&](bool ok) {
    require(ok, Fault::file, "{}: is not as it was written", where);
  };
  check(saved.is_object() && has_whole(saved, "sent"));
  for (const char* key : {"experiment", "run", "artifacts"}) check(has_text(saved, key));
  OutboxState s{.id = {},
                .experiment = saved["experiment"],
                .run = saved["run"],
                .artifacts = saved["artifacts"],
                .sent = saved["sent"]};
  // Earlier versions wrote neither an id nor a checksum.
  if (!saved.contains("id") && !saved.contains("sum") && saved.size() == 4) return s;
  check(has_text(saved, "id") && has_text(saved, "sum"));
  s.id = saved["id"];
  check(saved.size() == 6 && saved["sum"] == sum_of(json_of(s)));
  return s;
}

bool ends_a_line(const fs::path& outbox, int64_t bytes) {
  if (bytes == 0) return true;
  std::ifstream file(outbox, std::ios::binary);
  file.seekg(bytes - 1);
  return bytes > 0 && file.get() == '\n';
}

// The text of a file, if there is one; what cannot be read is put aside.
std::string text_or_aside(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return {};
  try {
    return read_text(file, std::numeric_limits<int64_t>::max());
  } catch (const Error& e) {
    log::warn("MLflow: {}; {} keeps it", e.what(), put_aside(file).string());
    return {};
  }
}

}  // namespace

std::optional<OutboxRecord> outbox_kind(const json& r) {
  if (!r.is_object()) return std::nullopt;
  const auto if_it_is = [](bool ok, OutboxRecord kind) {
    return ok ? std::optional(kind) : std::nullopt;
  };
  if (r.contains("run")) return if_it_is(is_run(r["run"]), OutboxRecord::run);
  if (r.contains("metrics")) return if_it_is(is_metrics(r), OutboxRecord::metrics);
  if (r.contains("file")) return if_it_is(is_file(r), OutboxRecord::file);
  return if_it_is(is_status(r), OutboxRecord::status);
}

json outbox_record(const std::string& line) {
  json record = json_or_null(line);
  return outbox_kind(record) ? record : json();
}

OutboxState read_outbox_state(const fs::path& folder) {
  const fs::path file = folder / "state.json";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return {};
  try {
    OutboxState state = parse_state(read_text(file, kMostState), file.string());
    // After a power cut the outbox may be shorter.
    if (!ends_a_line(outbox_in(folder), state.sent)) state.sent = 0;
    return state;
  } catch (const Error& e) {
    log::warn("MLflow: {}; everything is sent again, and {} keeps the file", e.what(),
              put_aside(file).string());
    return {};
  }
}

void write_outbox_state(const fs::path& folder, const OutboxState& state) {
  json out = json_of(state);
  out["sum"] = sum_of(json_of(state));
  write_text(folder / "state.json",
             out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

void mend_outbox(const fs::path& folder, json run) {
  const fs::path file = outbox_in(folder);
  OutboxState state = read_outbox_state(folder);
  const std::string text = text_or_aside(file);
  std::vector<BadLine> bad;
  std::string kept;
  bool has_run = false;
  int64_t number = 1;
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const auto kind = outbox_kind(json_or_null(line));
    if (kind == OutboxRecord::run) has_run = has_run || kept.empty();
    if (kind)
      kept += line + "\n";
    else
      bad.push_back({line, fmt::format("{}:{}: is no record of a run", file.string(), number)});
    ++number;
  }
  if (!has_run && is_id(state.id)) run["run"]["id"] = state.id;
  if (!has_run) kept = run.dump(-1, ' ', false, json::error_handler_t::replace) + "\n" + kept;
  if (kept == text) return;
  // A killed process may have left a part of its last line, which nobody misses.
  if (state.sent > 0 && !text.starts_with(kept)) {
    state.sent = 0;
    write_outbox_state(folder, state);
  }
  move_bad_lines(file, bad);
  write_text(file, kept);
}

}  // namespace capstan
