#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "report/gpu_monitor.h"
#include "report/metrics.h"
#include "tensor/queue.h"

namespace capstan {

// Tables for the end of a run, ready to print in 80 columns.

// One memory space of a run, planned and measured; zeros if unused.
struct MemoryUse {
  int64_t planned_bytes = 0, measured_bytes = 0;  // the one allocation
  ByCategory planned{}, measured{};               // MemoryPlan::highest, Arena::highest
};
MemoryUse memory_use(const MemoryPlan& plan, const Arena& arena);

// Planned and allocated bytes by category, the total, and the process's real use. Host memory, if
// any, has its own section.
std::string memory_table(const MemoryUse& device, const MemoryUse& host = {});

// The plan alone: bytes by category at the peak, with a bar for each share, and where the peak is.
// Host memory, if any, has its own section.
std::string plan_table(const RunPlan& plan);

// Time, FLOP/s and memory traffic of the `rows` slowest ops.
std::string op_table(const Queue& q, int rows);
// The same as numbers, slowest first.
std::vector<OpTotal> longest_ops(const Queue& q, int rows);

// Peak resident memory of this process in bytes; 0 if the system does not report it.
int64_t peak_resident_bytes();

// What one of several ranks did, in this process.
struct RankUse {
  double seconds = 0;         // of training
  double waited_seconds = 0;  // of them, for communication or other ranks
  int64_t planned_bytes = 0, measured_bytes = 0;
  int64_t tokens = 0;  // with padding
  double flops = 0;
  int64_t process = 0;  // its number on the rank's machine, and there…
  int gpu = -1;         // …the GPU; -1: the rank computed on the CPU
};

// Bytes on a GPU, as planned and as allocated.
struct BytesOnGpu {
  int64_t planned = 0, allocated = 0;
};

// A finished or stopped run. Fields that are 0 or empty are unknown and not shown.
struct RunSummary {
  std::string command = {};  // as it was typed
  std::string program = {};  // "0.1.0 (34d4793)"
  std::string model = {};
  std::string device = {}, precision = {};
  std::string processor = {};          // of the machine, even if a GPU computes
  int threads = 0;                     // on it
  std::string kernels = {};            // of its matrix products, if it computed
  int64_t trainable = 0, frozen = 0;   // parameters
  int64_t steps = 0, total_steps = 0;  // total: 0 if only time limits them
  double epochs = 0;
  std::string stopped_by = {};  // "SIGINT"; empty if the run reached its end

  double train_seconds = 0, eval_seconds = 0, save_seconds = 0;
  // Token counts as in LitGPT: the records' own tokens; with the prompt template (targets and
  // masked); and with padding.
  int64_t input_tokens = 0, tokens_with_prompt = 0, tokens_with_padding = 0;

  double step_seconds = 0;       // measured: mean over this process's steps, without the first
  double predicted_seconds = 0;  // predicted from the calibration
  std::string calibration = {};  // "NVIDIA H200 of 2026-08-05"

  double flops = 0;                  // of the training: Queue::total()
  double peak_flops_per_second = 0;  // of the device
  double ops_seconds = 0;            // of all ops: the 100 % of `ops`
  std::vector<OpTotal> ops = {};     // longest_ops

  std::vector<RankUse> ranks = {};      // of this process's part of the run
  std::vector<std::string> hosts = {};  // theirs
  std::string strategy = {};            // "zero3"

  MemoryUse memory = {};           // of the device
  MemoryUse host_memory = {};      // used by a GPU
  int64_t process_bytes = 0;       // peak_resident_bytes
  std::optional<GpuUse> gpu = {};  // GpuMonitor::use
  BytesOnGpu gpu_memory = {};      // of the ranks in this process that share that GPU

  std::optional<double> first_loss = {}, last_loss = {}, val_loss = {};
  std::optional<double> best_val_loss = {};  // if the run looked for it
  int64_t best_step = 0;
  std::string best = {};             // folder of that model, if it was kept
  std::string validation_note = {};  // rising_validation
  std::string checkpoint = {};       // folder
  std::string recipe = {};           // YAML, as it was used

  struct Sample {
    int64_t step = 0;  // the step after which the model wrote it
    std::string prompt = {}, text = {};
  };
  std::vector<Sample> samples = {};  // of this process
  // From the start of the first part to the end of the last.
  std::chrono::system_clock::time_point started = {}, ended = {};
  std::optional<int64_t> resumed_after = {};           // step; only if the run was resumed
  std::chrono::system_clock::time_point resumed = {};  // and if so, when

  double tokens_per_second() const;               // without padding; 0 if unknown
  double tokens_per_second_with_padding() const;  // what LitGPT prints as tok/sec
  // measured / predicted - 1, for a step
  std::optional<double> beyond_prediction() const;
  std::optional<double> mfu() const;  // flops / train_seconds / peak_flops_per_second
};

// What there is to say about a validation loss that was lower before: in the rows of steps, where
// all validations are of the same samples. Empty if there is nothing.
std::string rising_validation(const std::vector<MetricsRow>& rows);

// "Trained 400 steps in 2:41; loss 2.516 to 1.203, validation 1.311 (perplexity 3.71)", or, if
// stopped early, "Stopped by SIGINT after 120 of 400 steps in 0:48; …".
std::string verdict(const RunSummary& run);

// How each rank spent its time, in seconds. The rank that waits least is the slowest: what it waits
// is communication that nothing hid, and what others wait beyond that is for slower ranks.
struct RankTime {
  double compute = 0, communication = 0, waiting = 0;
  double tokens_per_second = 0;
};
std::vector<RankTime> rank_times(const RunSummary& run);
size_t slowest_rank(const RunSummary& run);
// These times with memory, a row for each rank. Empty for one rank.
std::string rank_table(const RunSummary& run);

// LitGPT's closing block (Token Counts, Performance, Memory Usage), with both rates labelled, and
// MFU, losses and the folder below.
std::string closing_block(const RunSummary& run);

}  // namespace capstan
