#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "report/growing_file.h"
#include "report/metrics_sink.h"
#include "report/trackers/mlflow_sender.h"

namespace capstan {

class MachineLoad;

// Writes what a run measures to its outbox, with how busy the machine is, and sends it.
class MlflowSink : public MetricsSink {
 public:
  // A resumed run goes on under its id; what it wrote for later steps is kept where it is the same.
  MlflowSink(const std::filesystem::path& folder, const RunLabels& labels);
  ~MlflowSink() override;

  void write(const MetricsRow& row) override;
  void catch_up(std::span<const MetricsRow> rows) override;
  void sync() override { outbox_.sync(); }
  const std::filesystem::path& path() const override { return outbox_.path(); }
  void finish(RunEnd end, std::span<const std::filesystem::path> files) override;
  // Waits until everything has arrived, or ten seconds without progress; half a second after it was
  // asked to stop.
  bool deliver(const StopAsked& stopped) override;

 private:
  void append(const nlohmann::json& record);
  void run();
  void send_until_the_end();
  void sample(MachineLoad& load);

  bool goes_on_;  // with a run of an earlier process
  GrowingFile outbox_;
  std::set<std::pair<int64_t, std::string>> earlier_;  // rows that it had before a resume, by step
  MlflowSender sender_;                                // of the thread, while it runs
  std::mutex mutex_;                                   // of outbox_ and what follows
  std::condition_variable changed_;
  bool finished_ = false, ending_ = false, sender_done_ = false;
  std::atomic<bool> given_up_ = false;  // what is on its way, too
  int64_t samples_ = 0;
  std::thread thread_;
};

}  // namespace capstan
