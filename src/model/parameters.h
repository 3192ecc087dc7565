#pragma once

#include <string_view>
#include <vector>

#include "model/spec.h"
#include "ops/linear.h"
#include "tensor/queue.h"

namespace capstan {

// Which types the numbers of a run have.
//   32-true     all f32
//   bf16-true   weights, gradients and optimizer state bf16
//   bf16-mixed  f32 masters, gradients and state; bf16 weights and activations to compute with
//   fp8-mixed   the same, and the products of the blocks' linear maps in FP8, for training all
//               weights (ops/linear_fp8.h)
enum class Precision : uint8_t { f32_true, bf16_true, bf16_mixed, fp8_mixed };
inline constexpr Precision kPrecisions[] = {Precision::f32_true, Precision::bf16_true,
                                            Precision::bf16_mixed, Precision::fp8_mixed};
std::string_view name_of(Precision precision);
Precision parse_precision(std::string_view name);  // throws Fault::usage, listing the names

struct PrecisionTypes {
  DType compute;  // weights as used, activations
  DType master;   // == compute where there is no separate master
  DType grad;
  DType state;
  bool has_master() const { return master != compute; }
};
PrecisionTypes types_of(Precision precision);

enum class Gradients : uint8_t {
  none,     // inference
  kept,     // made with the weights; zeroed by zero_grads
  in_step,  // made when the backward pass reaches their unit, gone after the update: for steps of
            // one micro-batch, where they take the place of activations that are used up
};

// A model's parameters in memory: for each row of the spec a weight, and, as the precision and the
// run have it, a master and a gradient. Frozen rows have the weight alone, or what it is quantized
// to. Indices are those of spec().params.
class Parameters {
 public:
  Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients);

  const ModelSpec& spec() const { return spec_; }
  Precision precision() const { return precision_; }
  PrecisionTypes types() const { return types_of(precision_); }
  int count() const { return static_cast<int>(spec_.params.size()); }

  // What the model computes with; absent for index -1, and for a quantized row…
  Tensor weight(int i) const { return i < 0 ? Tensor() : *weights_[static_cast<size_t>(i)]; }
  // …which has this instead. Null for other rows.
  const QuantizedMatrix* quantized(int i) const;
  // Absent without mixed precision, and for frozen rows.
  Tensor master(int i) const { return *masters_[static_cast<size_t>(i)]; }
  // What checkpoints hold: the master where there is one, else the weight.
  Tensor stored(int i) const { return master(i) ? master(i) : weight(i); }
  // Absent for index -1, for frozen rows, and outside the gradients' life.
  Tensor grad(int i) const { return i < 0 ? Tensor() : *grads_[static_cast<size_t>(i)]; }

  // Writes the values of one part of a frozen row: x is f32, bf16 or f16, the part's rows, in
  // memory of the queue's device. Quantizes or converts, whichever the row is stored in.
  void store_frozen(Queue& q, int i, int part, Tensor x);

  // Draws initial values by the spec, keyed by (seed, parameter). Throws Fault::bug where a row is
  // quantized: those are made of a model that exists.
  void initialize(Queue& q, uint64_t seed);
  // Those of the adapters alone, beside a model that was loaded.
  void initialize_adapters(Queue& q, uint64_t seed);
  // Rewrites the weights from the masters, after those were loaded. Nothing without masters.
  void refresh_weights(Queue& q);

  // The life of gradients. zero_grads begins a step; need_grads is called by the backward pass
  // before it adds to a unit's gradients; drop_grads ends the step.
  void zero_grads(Queue& q);
  void need_grads(Queue& q, int unit);
  void drop_grads();
  // A gradient that one call writes as a whole in every backward pass need not be zeroed: whoever
  // makes that call says so before the first step, and then writes as write_grad says, which
  // replaces in the first pass of a step.
  void writes_grad_whole(int i) { written_whole_[static_cast<size_t>(i)] = true; }
  Write write_grad(int i);

 private:
  struct QuantizedRow {
    QuantizedMatrix matrix;
    std::vector<Buffer> buffers;
  };
  static QuantizedRow make_quantized(Arena& arena, const Param& param);
  void initialize_row(Queue& q, uint64_t seed, int i);
  void begin_grad(int i);

  ModelSpec spec_;
  Precision precision_;
  Gradients gradients_;
  Arena& arena_;
  std::vector<Buffer> weights_, masters_, grads_;
  std::vector<QuantizedRow> quantized_;
  std::vector<Tensor> fresh_;  // to be zeroed; kept, so that a step stays off the heap
  std::vector<bool> written_whole_, unwritten_;
};

}  // namespace capstan
