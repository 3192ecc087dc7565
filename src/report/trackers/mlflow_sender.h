#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hub/http.h"
#include "report/trackers/mlflow_outbox.h"

// MLflow, by the REST API of its server. What a run has to tell is first written to a file, its
// outbox, with the time at which it happened; a thread sends it. So a server that is away costs the
// run nothing, and what it missed is sent when it answers again, by the run, by the resumed run, or
// by `capstan sync`. The server stores once what arrives twice. mlflow_outbox.h has the files.
namespace capstan {

struct MlflowAccess {
  std::string uri;          // of the server
  std::string user, token;  // "name:password", or a token; empty: none
};
// MLFLOW_TRACKING_URI (http://127.0.0.1:5000), MLFLOW_TRACKING_USERNAME and _PASSWORD or _TOKEN.
// Throws Fault::usage for what is no http or https URL.
MlflowAccess mlflow_access();

// Sends an outbox.
class MlflowSender {
 public:
  // `stopped` is asked many times a second whether to give up a request.
  MlflowSender(std::filesystem::path folder, MlflowAccess access,
               std::function<bool()> stopped = {});

  enum class Outcome : uint8_t {
    nothing,      // everything has arrived
    sent,         // some more of it has
    unreachable,  // the server does not answer, or not now: `why`
    refused,      // the server does not let us in: `why`
  };
  // One request or a few.
  Outcome send_some();
  const std::string& why() const { return why_; }
  // What the server did not accept since the last call, and lines that are no records; they are not
  // sent again.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }
  int64_t waiting() const;  // records

 private:
  std::vector<std::string> next_lines() const;
  std::optional<HttpAnswer> ask(const std::string& path, const nlohmann::json& body);
  std::optional<HttpAnswer> judged(HttpAnswer answer, const std::string& what);
  bool begin_run(const nlohmann::json& run);
  bool send_metrics(std::span<const nlohmann::json> records);
  bool send_batches(const char* kind, std::span<const nlohmann::json> entries, size_t most);
  bool send_file(const nlohmann::json& record);
  bool send_record(const nlohmann::json& record, OutboxRecord kind);
  void save() const;

  std::filesystem::path folder_;
  MlflowAccess access_;
  Http http_;
  OutboxState state_;
  std::string why_;
  std::vector<std::string> complaints_;
  Outcome trouble_ = Outcome::nothing;
};

}  // namespace capstan
