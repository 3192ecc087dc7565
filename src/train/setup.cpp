#include "train/setup.h"

#include <fmt/format.h>

#include <algorithm>

namespace capstan {
namespace {

PipelineOptions pipeline_of(const Recipe& r, int data_ranks) {
  const PipelineChoice& choice = r.pipeline_schedule;
  PipelineOptions o;
  if (choice.kind == PipelineChoice::zero_bubble) o.kind = PipelineKind::zero_bubble;
  o.chunks = static_cast<int>(choice.chunks);
  o.micro_batches = (r.global_batch_size - 1) / r.micro_batch_size.size / data_ranks + 1;
  return o;
}

MeshShape mesh_for(const Recipe& r, const Ranks& ranks) {
  const MeshShape mesh = mesh_of(r);
  const std::string there = ranks.size == 1 ? "is one" : fmt::format("are {}", ranks.size);
  require(mesh.ranks() != mesh.pipeline || ranks.size % mesh.ranks() == 0, Fault::usage,
          "pipeline_parallel: {} stages need as many ranks or a multiple of it, but there {}; set "
          "devices",
          mesh.pipeline, there);
  require(ranks.size % mesh.ranks() == 0, Fault::usage,
          "tensor_parallel {} × context_parallel {} × pipeline_parallel {} need {} ranks or a "
          "multiple of it, but there {}; set devices",
          mesh.tensor, mesh.context, mesh.pipeline, mesh.ranks(), there);
  return mesh;
}

}  // namespace

TrainOptions train_options(const Recipe& r, Task task, const ModelConfig& model) {
  TrainOptions o;
  o.model = model;
  o.device = device_of(r.accelerator);
  o.staging = r.save_async;
  // As in LitGPT: on a GPU bf16-mixed, or 16-mixed if it has no bf16.
  o.has_bf16 = computes_bf16(o.device);
  const auto on_gpu = o.has_bf16 ? Precision::bf16_mixed : Precision::f16_mixed;
  o.precision = r.precision.value_or(o.device == Device::cuda ? on_gpu : Precision::f32_true);
  o.tf32 = r.matmul_precision.value_or(MatmulPrecision::high) == MatmulPrecision::high;
  o.recompute_to_fit = r.activations.automatic;
  if (!o.recompute_to_fit) o.recompute = recomputation_of(r.activations);
  o.single_micro_batch = r.global_batch_size == r.micro_batch_size.size;
  o.optimizer = {.kind = r.optimizer.kind,
                 .paged = r.optimizer.paged,
                 .beta1 = r.betas.first,
                 .beta2 = r.betas.second,
                 .eps = r.eps,
                 .momentum = r.momentum,
                 .dampening = r.dampening,
                 .nesterov = r.nesterov,
                 .weight_decay = r.weight_decay,
                 .stochastic = r.rounding == Rounding::stochastic,
                 .seed = static_cast<uint64_t>(r.seed)};
  o.decay = r.decay;
  o.max_norm = r.max_norm.value_or(0);
  o.loss_scale = {.start = r.loss_scale, .interval = r.loss_scale_interval};
  o.skip_not_finite = r.on_nan == OnNan::skip;
  o.seed = static_cast<uint64_t>(r.seed);
  if (task == Task::finetune_lora) {
    o.lora = lora_options(r);
    o.quantize = r.quantize.value_or(Quantize::none);
  }
  return o;
}

std::string precision_note(const TrainOptions& o) {
  if (types_of(o.precision).compute != DType::f16 || !o.has_bf16) return {};
  const std::string where =
      o.device == Device::cpu ? "a CPU converts f16 value by value, which is slow"
      : cuda_present()        ? "this GPU has bf16, with the range of f32"
                              : "GPUs from Ampere on have bf16, with the range of f32";
  return fmt::format("precision: {}: {} would serve better than {}, and needs no loss scale", where,
                     name_of(with_bf16(o.precision)), name_of(o.precision));
}

BatchOptions batch_options(const Recipe& r, const RunInputs& in) {
  return {.max_seq_length = in.max_seq_length,
          .vocab = in.model.config.vocab,
          .packed = r.packed,
          .shares = mesh_of(r).token_multiple()};
}

TrainOptions train_options(const Recipe& r, Task task, const RunInputs& in) {
  TrainOptions o = train_options(r, task, in.model.config);
  BatchOptions batches = batch_options(r, in);
  batches.shares = 1;  // the trainer adds what its mesh needs
  o.limits = limits_of(in.data.train, r.micro_batch_size.size, batches);
  if (in.data.validation.size() > 0)
    o.limits.include(limits_of(in.data.validation, r.micro_batch_size.size, batches));
  const RunLength length(r, in.data.train, in.max_seq_length);
  o.schedule = length.schedule(r);
  o.staging = o.staging && r.save_interval && *r.save_interval < length.steps();
  return o;
}

TrainOptions worst_case_options(const Recipe& r, Task task, const ModelConfig& model) {
  TrainOptions o = train_options(r, task, model);
  const int64_t length = max_seq_length_of(r, model);
  warn_of_positions(r, model);
  // A larger batch ("all samples") would not fit anywhere.
  const int64_t samples = std::min<int64_t>(r.micro_batch_size.size, 1 << 20);
  o.limits = {.tokens = samples * length, .documents = samples, .longest = length};
  o.staging = o.staging && r.save_interval && *r.save_interval < r.max_steps.value_or(INT64_MAX);
  if (r.eval_max_new_tokens && !is_text(r.data))
    o.sample_positions = std::min(model.max_positions, length + *r.eval_max_new_tokens);
  return o;
}

MeshShape mesh_of(const Recipe& r) {
  MeshShape mesh{.pipeline = static_cast<int>(r.pipeline_parallel),
                 .tensor = static_cast<int>(r.tensor_parallel),
                 .context = static_cast<int>(r.context_parallel)};
  const bool can = mesh.tensor > 1 && r.precision != Precision::fp8_mixed;
  mesh.overlap = can && r.tensor_parallel_overlap == Overlap::on;
  mesh.padded_to_overlap = can && r.tensor_parallel_overlap != Overlap::off;
  return mesh;
}

int machines_of_part(const TrainOptions& o) {
  if (o.ranks.size % o.machines != 0) return 0;
  const int on_machine = o.ranks.size / o.machines, sharing = o.ranks.size / o.mesh.pipeline;
  // Those that share a layer are on one machine.
  if (on_machine % o.mesh.tensor != 0) return 0;
  if (sharing <= on_machine) return on_machine % sharing == 0 ? 1 : 0;
  return sharing % on_machine == 0 ? sharing / on_machine : 0;
}

void set_ranks(TrainOptions& o, const Recipe& r, const Ranks& ranks, const Network& network,
               int machines) {
  o.ranks = ranks;
  o.network = network;
  o.mesh = mesh_for(r, ranks);
  o.choose_overlap = o.mesh.padded_to_overlap && !o.mesh.overlap;
  const int stages = o.mesh.pipeline, sharing = ranks.size / stages / o.mesh.tensor;
  o.pipeline = pipeline_of(r, batch_ranks(ranks, o.mesh).size);
  o.machines = std::max(machines, static_cast<int>(r.num_nodes));
  machines = machines_of_part(o);
  const bool even = machines > 0;
  o.single_micro_batch = o.pipeline.micro_batches == 1;
  switch (r.strategy.kind) {
    case Strategy::automatic:
      o.sharding = sharing == 1 ? kDdp : stages > 1 ? kZero1 : kZero3;
      break;
    case Strategy::ddp:
    case Strategy::dp: o.sharding = kDdp; break;
    case Strategy::zero1: o.sharding = kZero1; break;
    case Strategy::zero2: o.sharding = kZero2; break;
    case Strategy::zero3: o.sharding = kZero3; break;
    case Strategy::hybrid:
      require(even, Fault::usage,
              "strategy: hybrid needs as many ranks {}on each machine, and they are not",
              o.mesh.ranks() > 1 ? "with the same part of the model " : "");
      o.sharding = hybrid(machines);
      break;
  }
  o.sharding.machines = even ? machines : 1;
  o.sharding.offload = r.strategy.offload;
}

}  // namespace capstan
