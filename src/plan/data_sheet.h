#pragma once

#include <optional>

#include "comm/simulated.h"
#include "plan/calibration.h"
#include "plan/gpu_catalogue.h"

// Machines that are not here. Of those that were not measured either: what programs reach of a
// GPU's data sheet. The fractions are those that Capstan reaches in training steps on an H200
// (docs/performance.md), and public measurements of products and collectives. None is fitted to a
// time that docs/planner.md compares with.
namespace capstan {

// The GPU as if it had been measured: its name says that it was not. Of several the slowest, for
// which the others wait: cards differ by some percent. Arithmetic is slower where the power of the
// row allows a lower clock than the data sheet has.
Calibration data_sheet(const GpuModel& gpu, int gpus = 1);

// As `capstan bench` measured one like it, if the user's cache has such a calibration; else as by
// its data sheet. Of several the slowest, too. What connects them is by data sheet in any case,
// since it depends on how many there are on how many machines.
Calibration calibration_of(const GpuModel& gpu, int gpus = 1);

// What connects the GPUs of machines with so many each. Without `across`, the bytes/s that each GPU
// has between machines each way, there is as much as machines with such GPUs usually have.
Network data_sheet_network(const GpuModel& gpu, int ranks_per_machine,
                           std::optional<double> across = {});

}  // namespace capstan
