#pragma once

#include <cstdint>

#include "base/names.h"

// What a recipe chooses from, with the one table of names for each choice (base/names.h). The
// layers that act on a choice take these types from here.
namespace capstan {

// Which types the numbers of a run have.
//   32-true     all f32
//   bf16-true   weights, gradients and optimizer state bf16
//   bf16-mixed  f32 masters, gradients and state; bf16 weights and activations to compute with
//   16-true     weights and gradients f16, optimizer state f32
//   16-mixed    as bf16-mixed, with f16
//   fp8-mixed   as bf16-mixed, and the products of the blocks' linear maps in FP8, for training all
//               weights (ops/linear_fp8.h)
// f16 is for GPUs without bf16; its gradients need a loss scale (optim/loss_scale.h).
enum class Precision : uint8_t { f32_true, bf16_true, bf16_mixed, f16_true, f16_mixed, fp8_mixed };
template <>
struct NameTable<Precision> {
  static constexpr Named<Precision> rows[] = {
      {Precision::f32_true, "32-true"},      {Precision::bf16_true, "bf16-true"},
      {Precision::bf16_mixed, "bf16-mixed"}, {Precision::f16_true, "16-true"},
      {Precision::f16_mixed, "16-mixed"},    {Precision::fp8_mixed, "fp8-mixed"}};
};

// The products of 32-true on a GPU: of f32, or with factors rounded to TF32 (high).
enum class MatmulPrecision : uint8_t { highest, high };
template <>
struct NameTable<MatmulPrecision> {
  static constexpr Named<MatmulPrecision> rows[] = {{MatmulPrecision::highest, "highest"},
                                                    {MatmulPrecision::high, "high"}};
};

// What of one block the backward pass computes again instead of the forward pass keeping it.
enum class Recompute : uint8_t {
  none,       // nothing
  selective,  // norms and SwiGLU: cheap, and a third of the memory
  block,      // everything but the block's input
};
template <>
struct NameTable<Recompute> {
  static constexpr Named<Recompute> rows[] = {
      {Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::block, "block"}};
};

// What of a model each of several ranks keeps (model/sharding.h).
//   auto    among several ranks the fastest that fits, if the machine was measured, else zero3, as
//           LitGPT's FSDP; on one device, all of it
//   hybrid  zero3 within each machine, whose ranks together keep what those of every other do
//   dp      Lightning's name for one process with several GPUs; the same as ddp here
// With `offload`, masters and moments are in host memory beside a GPU.
struct Strategy {
  enum Kind : uint8_t { automatic, ddp, zero1, zero2, zero3, hybrid, dp };
  Kind kind = automatic;
  bool offload = false;

  constexpr Strategy(Kind a_kind = automatic, bool offloads = false)
      : kind(a_kind), offload(offloads) {}
  bool operator==(const Strategy&) const = default;
};
template <>
struct NameTable<Strategy> {
  static constexpr Named<Strategy> rows[] = {
      {Strategy::automatic, "auto"},
      {Strategy::ddp, "ddp"},
      {Strategy::zero1, "zero1"},
      {Strategy::zero2, "zero2"},
      {Strategy::zero3, "zero3"},
      {Strategy::zero3, "fsdp"},
      {Strategy::zero3, "fsdp:full_shard"},
      {Strategy::zero2, "fsdp:shard_grad_op"},
      {Strategy::zero1, "deepspeed_stage_1"},
      {Strategy::zero2, "deepspeed_stage_2"},
      {Strategy::zero3, "deepspeed_stage_3"},
      {Strategy::hybrid, "hybrid"},
      {Strategy::hybrid, "fsdp:hybrid_shard"},
      {Strategy::dp, "dp"},
      {{Strategy::automatic, true}, "offload"},
      {{Strategy::zero1, true}, "zero1_offload"},
      {{Strategy::zero2, true}, "zero2_offload"},
      {{Strategy::zero3, true}, "zero3_offload"},
      {{Strategy::hybrid, true}, "hybrid_offload"},
      {{Strategy::zero1, true}, "deepspeed_stage_1_offload"},
      {{Strategy::zero2, true}, "deepspeed_stage_2_offload"},
      {{Strategy::zero3, true}, "deepspeed_stage_3_offload"}};
};

// How the learning rate moves after the warm-up (optim/schedule.h).
enum class LrDecay : uint8_t { constant, linear, cosine };
template <>
struct NameTable<LrDecay> {
  static constexpr Named<LrDecay> rows[] = {
      {LrDecay::constant, "constant"}, {LrDecay::linear, "linear"}, {LrDecay::cosine, "cosine"}};
};

// What a run does about a step whose loss or gradients are not finite. The weights stay as they
// were in either case.
enum class OnNan : uint8_t { stop, skip };
template <>
struct NameTable<OnNan> {
  static constexpr Named<OnNan> rows[] = {{OnNan::stop, "stop"}, {OnNan::skip, "skip"}};
};

enum class OptimizerKind : uint8_t { adamw, adamw8bit, sgd };
// An optimizer as torch.optim and bitsandbytes name it: a method, and where its state lives.
struct OptimizerClass {
  OptimizerKind kind = OptimizerKind::adamw;
  bool paged = false;  // the state lives in host memory beside a GPU
  bool operator==(const OptimizerClass&) const = default;
};
template <>
struct NameTable<OptimizerClass> {
  static constexpr Named<OptimizerClass> rows[] = {
      {{OptimizerKind::adamw, false}, "AdamW"},
      {{OptimizerKind::sgd, false}, "SGD"},
      {{OptimizerKind::adamw8bit, false}, "AdamW8bit"},
      {{OptimizerKind::adamw, true}, "PagedAdamW"},
      {{OptimizerKind::adamw8bit, true}, "PagedAdamW8bit"}};
  // What may stand before a name.
  static constexpr std::string_view modules[] = {"torch.optim.", "bitsandbytes.optim.",
                                                 "bnb.optim."};
};
constexpr std::string_view name_of(OptimizerKind kind) {
  return name_of(OptimizerClass{kind, false});
}

// Whether ranks that share each layer exchange tokens while they compute with others.
enum class Overlap : uint8_t { off, on, automatic };
template <>
struct NameTable<Overlap> {
  static constexpr Named<Overlap> rows[] = {
      {Overlap::automatic, "auto"}, {Overlap::on, "true"}, {Overlap::off, "false"}};
};

// Weight decay applies to everything, as torch.optim.AdamW has it by itself, or to matrices alone,
// leaving out norms and biases.
enum class Decay : uint8_t { all, matrices };
template <>
struct NameTable<Decay> {
  static constexpr Named<Decay> rows[] = {{Decay::all, "all"}, {Decay::matrices, "matrices"}};
};

// Of weights that have no f32 master: to the nearest bf16, or up or down at random so that the mean
// is exact.
enum class Rounding : uint8_t { nearest, stochastic };
template <>
struct NameTable<Rounding> {
  static constexpr Named<Rounding> rows[] = {{Rounding::nearest, "nearest"},
                                             {Rounding::stochastic, "stochastic"}};
};

// What a run writes its metrics to, besides metrics.csv (report/metrics.h).
enum class Logger : uint8_t { csv, tensorboard, jsonl, mlflow, wandb };
template <>
struct NameTable<Logger> {
  static constexpr Named<Logger> rows[] = {{Logger::csv, "csv"},
                                           {Logger::tensorboard, "tensorboard"},
                                           {Logger::jsonl, "jsonl"},
                                           {Logger::mlflow, "mlflow"},
                                           {Logger::wandb, "wandb"}};
};

// LitGPT's classes of data.
enum class DataClass : uint8_t {
  json,        // records of a file that the recipe names
  text_files,  // texts of files that the recipe names
  // Public sets of records, by name.
  alpaca,
  alpaca2k,
  alpaca_gpt4,
  deita,
  dolly,
  flan,
  lima,
  longform,
  // Sets of texts, by name.
  tinystories,
  tinyllama,
  microllama,
  openwebtext,
  litdata,
};
template <>
struct NameTable<DataClass> {
  static constexpr Named<DataClass> rows[] = {{DataClass::json, "JSON"},
                                              {DataClass::text_files, "TextFiles"},
                                              {DataClass::alpaca, "Alpaca"},
                                              {DataClass::alpaca2k, "Alpaca2k"},
                                              {DataClass::alpaca_gpt4, "AlpacaGPT4"},
                                              {DataClass::deita, "Deita"},
                                              {DataClass::dolly, "Dolly"},
                                              {DataClass::flan, "FLAN"},
                                              {DataClass::lima, "LIMA"},
                                              {DataClass::longform, "LongForm"},
                                              {DataClass::tinystories, "TinyStories"},
                                              {DataClass::tinyllama, "TinyLlama"},
                                              {DataClass::microllama, "MicroLlama"},
                                              {DataClass::openwebtext, "OpenWebText"},
                                              {DataClass::litdata, "LitData"}};
  static constexpr std::string_view modules[] = {"litgpt.data."};
};

// A set of texts by name, which lies at data.data_path.
constexpr bool is_text_set(DataClass data) {
  return data >= DataClass::tinystories;
}
// Texts, all of whose tokens are learned, and not records.
constexpr bool is_text(DataClass data) {
  return data == DataClass::text_files || is_text_set(data);
}

}  // namespace capstan
