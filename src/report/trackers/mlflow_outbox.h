#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

// The two files of a run's outbox for MLflow. A power cut, a full disk or an editor may have
// damaged them: what cannot be read is put aside, and everything else is sent again.
//
//   outbox.jsonl   {"run": {…}} first · {"metrics": {…}, "step", "time"} · {"file", "as"} ·
//                  {"status", "time"}
//   state.json     OutboxState, with a checksum
namespace capstan {

enum class OutboxRecord : uint8_t { run, metrics, file, status };

// The kind of a record that has every key of its kind, of the right type; nothing for others.
std::optional<OutboxRecord> outbox_kind(const nlohmann::json& record);

// The value of a line; null unless it is a record.
nlohmann::json outbox_record(const std::string& line);

struct OutboxState {
  std::string id;                          // of the run, as its record has it
  std::string experiment, run, artifacts;  // on the server; empty: not known yet
  int64_t sent = 0;                        // bytes of the outbox that have arrived
};

// What the folder's state.json says. A file that cannot be what write_outbox_state wrote is put
// aside with a warning. `sent` is 0 unless a line of the outbox ends there.
OutboxState read_outbox_state(const std::filesystem::path& folder);
void write_outbox_state(const std::filesystem::path& folder, const OutboxState& state);

// Makes a folder's outbox one to append to, for the process that owns the run: whole records, that
// of the run first. Bad lines are moved to outbox.jsonl.bad. If the record of the run is missing,
// `run` takes its place, under the id that state.json has. After a change everything is sent again;
// the server stores once what it has.
void mend_outbox(const std::filesystem::path& folder, nlohmann::json run);

inline std::filesystem::path outbox_in(const std::filesystem::path& folder) {
  return folder / "outbox.jsonl";
}

}  // namespace capstan
