#pragma once

#include <optional>
#include <string>

#include "cli/plan_options.h"
#include "machine/memory.h"
#include "plan/calibration.h"
#include "plan/gpu_catalogue.h"
#include "plan/run_on.h"
#include "train/trainer.h"

// The machine that a run is planned for: this one, or one of the catalogue's GPUs; what memory it
// has, how fast it is, and what connects its ranks.
namespace capstan::cli {

// The ranks of a recipe on all machines. Throws Fault::usage for more than can be planned.
int64_t require_ranks(const Recipe& recipe);

// Of more GPUs in a machine than is usual, which may have been meant as all of them.
void warn_of_large_machines(const Recipe& recipe);

// The recipe for a GPU of the catalogue. Without bf16 it takes f16, as a run there does; of a
// machine with more GPUs than it holds it takes several.
void take_gpu(Recipe& recipe, PlanOptions& options, const GpuModel& gpu);

// The memory that a run may take, and a line about what CUDA takes of it.
struct Available {
  Room room;
  std::string cuda_share;
};
Available available_for(const PlanOptions& options, Device device, int64_t ranks_on_machine);

// A calibration file that the user names must be valid; an unsuitable one in the cache is ignored.
std::optional<Calibration> calibration_for(const PlanOptions& options, const TrainOptions& planned,
                                           const Recipe& recipe,
                                           const std::optional<GpuModel>& gpu);

// What connects the ranks: as measured, or by the data sheet of their GPUs, or of one machine as
// measured and between several by the data sheet or --network. None if neither is known.
std::optional<Network> network_for(const PlanOptions& options, const std::optional<GpuModel>& gpu,
                                   const Calibration& calibration, const Recipe& recipe);

// What the options say of machines with this GPU, for plans of other numbers of them.
Stated stated_by(const PlanOptions& options, const GpuModel& gpu);

// FLOP/s of the run's products on one GPU, by its data sheet, and the catalogue's key of them.
std::optional<double> peak_of(const std::optional<GpuModel>& gpu, const TrainOptions& options);
std::string_view key_of_peak(const TrainOptions& options);

}  // namespace capstan::cli
