#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "comm/simulated.h"
#include "data/batch/device_batch.h"
#include "model/parameters.h"
#include "model/recompute.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "parallel/pipeline_schedule.h"

namespace capstan {

// How the stages of a pipeline take turns. The number of stages is the mesh's.
struct PipelineOptions {
  PipelineKind kind = PipelineKind::one_f_one_b;
  int chunks = 1;              // of each stage
  int64_t micro_batches = 1;   // of a rank in a step, at most
  std::vector<int> cuts = {};  // the block with which each piece begins, and where the last ends
};

// Everything that decides what a training run computes and how much memory it needs.
struct TrainOptions {
  Device device = Device::cpu;
  ModelConfig model;
  Precision precision = Precision::f32_true;
  bool has_bf16 = true;  // the device computes with it
  bool tf32 = false;     // f32 matrix products on cuda are in TF32, if it has that (uses_tf32)
  Recomputation recompute;
  bool recompute_to_fit = false;  // fit_of (fit.h) chooses `recompute`
  BatchLimits limits;
  bool single_micro_batch = false;  // a step is one micro-batch: gradients need not outlive it
  OptimizerOptions optimizer;
  Decay decay = Decay::all;
  std::optional<LoraOptions> lora;     // train adapters on a frozen model
  Quantize quantize = Quantize::none;  // of the frozen model
  uint64_t seed = 0;                   // of dropout
  Schedule schedule;
  double max_norm = 0;           // 0: no clipping
  LossScaleOptions loss_scale;   // of f16
  bool skip_not_finite = false;  // skip steps whose loss or gradients are not finite
  Ranks ranks;                   // this one of those that train together
  int machines = 1;              // that they are on
  MeshShape mesh;                // how they share the work
  bool choose_overlap = false;   // mesh.overlap, by its time (predict.h: overlap_pays)
  PipelineOptions pipeline;      // of the stages that the mesh has
  Sharding sharding;             // of the model among them
  Network network;               // between them, as a plan simulates it
  bool staging = false;  // a copy of the state in host memory, to save while training continues
  int64_t sample_positions = 0;  // cache positions for samples generated during the run; 0: none
};

// Whether the products of the model are in TF32: those of 32-true, on a GPU that has it. Those are
// the GPUs with bf16.
inline bool uses_tf32(const TrainOptions& o) {
  return o.tf32 && o.has_bf16 && o.device == Device::cuda && o.precision == Precision::f32_true;
}

// The model's parameters, of one of the ranks.
ModelSpec spec_of(const TrainOptions& options, const Ranks& rank);

// "32-true", or "32-true (TF32)".
std::string precision_name(const TrainOptions& options);

// How the ranks share the work: "zero3", "zero1 in each of 4 stages (1f1b)".
std::string mesh_name(const TrainOptions& options);

}  // namespace capstan
