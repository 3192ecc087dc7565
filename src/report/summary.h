#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "report/gpu_monitor.h"
#include "tensor/queue.h"

namespace capstan {

// Tables for the end of a run, ready to print in 80 columns.

// One memory space of a run, as it was planned and as it was used; zeros where there is none.
struct MemoryUse {
  int64_t planned_bytes = 0, measured_bytes = 0;  // the one allocation
  ByCategory planned{}, measured{};               // MemoryPlan::highest, Arena::highest
};
MemoryUse memory_use(const MemoryPlan& plan, const Arena& arena);

// Planned and allocated bytes by category, the total, and what the process really took. Host memory
// has a part of its own where there is any.
std::string memory_table(const MemoryUse& device, const MemoryUse& host = {});

// The plan alone: by category at the worst moment, with its share as a bar, and where that moment
// is. Host memory has a part of its own where there is any.
std::string plan_table(const RunPlan& plan);

// Time, arithmetic and traffic of the `rows` ops that took the longest.
std::string op_table(const Queue& q, int rows);
// The same as numbers, the longest first.
std::vector<OpTotal> longest_ops(const Queue& q, int rows);

// The most memory this process has had in RAM so far, in bytes; 0 where the system does not say.
int64_t peak_resident_bytes();

// What a run was and did. What is 0 or empty is not known, and is not shown.
struct RunSummary {
  std::string command = {};  // as it was typed
  std::string program = {};  // "0.1.0 (34d4793)"
  std::string model = {};
  std::string device = {}, precision = {};
  std::string processor = {};          // of the machine, also where a GPU computes
  int threads = 0;                     // on it
  int64_t trainable = 0, frozen = 0;   // parameters
  int64_t steps = 0, total_steps = 0;  // total: 0 where nothing but time limits them
  double epochs = 0;
  std::string stopped_by = {};  // "SIGINT"; empty when the run reached its end

  double train_seconds = 0, eval_seconds = 0, save_seconds = 0;
  // As LitGPT counts them: the records' own tokens; those with the prompt's template (targets and
  // masked); and with what filled the batches up.
  int64_t input_tokens = 0, tokens_with_prompt = 0, tokens_with_padding = 0;

  double step_seconds = 0;       // measured, the mean of this process's steps but the first
  double predicted_seconds = 0;  // of a step, by the calibration
  std::string calibration = {};  // "NVIDIA H200 of 2026-08-05"

  double flops = 0;                  // done in training: Queue::total()
  double peak_flops_per_second = 0;  // of the device
  double ops_seconds = 0;            // all ops: what the shares in `ops` are of
  std::vector<OpTotal> ops = {};     // longest_ops

  MemoryUse memory = {};           // of the device
  MemoryUse host_memory = {};      // that a GPU uses
  int64_t process_bytes = 0;       // peak_resident_bytes
  std::optional<GpuUse> gpu = {};  // GpuMonitor::use

  std::optional<double> first_loss = {}, last_loss = {}, val_loss = {};
  std::string checkpoint = {};  // folder
  std::string recipe = {};      // YAML, as it was used

  struct Sample {
    int64_t step = 0;  // after which the model wrote it
    std::string prompt = {}, text = {};
  };
  std::vector<Sample> samples = {};  // of this process
  // From the begin of the first part to the end of the last.
  std::chrono::system_clock::time_point started = {}, ended = {};
  std::optional<int64_t> resumed_after = {};           // step; only where the run was resumed
  std::chrono::system_clock::time_point resumed = {};  // and then: when

  double tokens_per_second() const;               // without padding; 0 if unknown
  double tokens_per_second_with_padding() const;  // what LitGPT prints as tok/sec
  // measured / predicted - 1 of a step
  std::optional<double> beyond_prediction() const;
  std::optional<double> mfu() const;  // flops / train_seconds / peak_flops_per_second
};

// "Trained 400 steps in 2:41; loss 2.516 to 1.203, validation 1.311 (perplexity 3.71)", or, before
// the end, "Stopped by SIGINT after 120 of 400 steps in 0:48; …".
std::string verdict(const RunSummary& run);

// LitGPT's closing block (Token Counts, Performance, Memory Usage), with both rates, labelled, and
// MFU, losses and the folder below.
std::string closing_block(const RunSummary& run);

}  // namespace capstan
