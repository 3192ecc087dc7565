#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_options.h"
#include "cli/planned.h"
#include "plan/alternatives.h"
#include "plan/fit.h"
#include "plan/offers.h"
#include "plan/pytorch_ratio.h"
#include "plan/quick.h"
#include "plan/uncertainty.h"

// What `capstan plan` answers, before it is printed.
namespace capstan::cli {

// Predicted times on the calibrated machine.
struct Time {
  Calibration calibration = {};
  StepEstimate step = {};                  // corrected by the record, if that was asked for
  std::optional<double> run_seconds = {};  // all steps, if their number is known
  Uncertainty range = {};
  std::optional<PyTorchRatio> pytorch = {};  // of times by data sheet
  std::optional<TrackRecord> record = {};    // of this device
  double correction = 1;                     // that `step` has
  bool asked_to_correct = false;
};

// The largest micro-batch and sequence that fit; 0: none does.
struct Largest {
  int64_t micro_batch = 0, sequence = 0;
};

// Checkpoints that are enough to go back to, of a run that keeps every one that it writes.
inline constexpr int64_t kUsuallyKept = 3;

// What the run needs besides its devices.
struct Needs {
  int64_t planned_host_bytes = 0;  // of each machine, for all of its ranks
  int64_t host_bytes = 0;          // of each machine: what is planned, or as much as its GPUs have
  int64_t cores = 0;               // of each machine
  int64_t checkpoint_bytes = 0;    // one that a run can resume
  int64_t checkpoints = 0;      // besides the final one that are there at the end, if that is known
  bool keeps_all = false;       // of the checkpoints that it writes: nothing says how many
  int64_t disk_of_last = 0;     // the disk if kUsuallyKept were kept; 0: no less
  int64_t model_bytes = 0;      // the final model
  int64_t base_bytes = 0;       // the model that is tuned, in 16 bits
  int64_t data_bytes = 0;       // if the recipe gives them by path
  int64_t stored_bytes = 0;     // all this together
  int64_t disk_bytes = 0;       // a disk for it, 80% full
  double input_tokens = 0;      // a second that the run reads
  double tokenizer_tokens = 0;  // a second that were tokenized here; 0: not measured
  int64_t copy_bytes = 0;       // of the model in 16 bits, to use it
  Copies copies;                // that GPUs hold
};

struct Answers {
  Fit fit;
  Largest largest;
  Machines machines;
  std::optional<GpuModel> gpu;            // of the catalogue, if it is one of those
  Stated stated = {};                     // of machines with it
  std::optional<double> peak_flops = {};  // of one, of the run's products
  std::string cuda_share;                 // a line about what CUDA takes of the GPU's memory
  std::optional<Time> time;               // if it fits
  std::vector<RankClass> classes;
  Needs needs;
  std::vector<Remedy> remedies;            // if it does not fit
  std::optional<RunCost> cost;             // if the GPU has a price and the steps are known
  std::vector<ScalePoint> scaling;         // on more and fewer of these GPUs
  std::vector<RentedRun> offers;           // if the steps are known
  std::vector<Sensitivity> sensitivities;  // if times are known
  Wish wish;
  std::string command;  // that trains so, where a machine was chosen
  std::string network_origin;

  // Instances are not joined as machines with such GPUs usually are.
  bool can_be_rented() const { return machines.count == 1 || stated.across; }
};

// Bytes/s of each GPU to other machines, each way; none of one machine, or if it is not known.
std::optional<double> between_machines(const Machines& machines);

Needs needs_of(const Planned& planned, const Recipe& recipe, Task task, const Answers& answers);

}  // namespace capstan::cli
