#pragma once

#include <string_view>
#include <vector>

#include "model/units.h"
#include "ops/linear.h"
#include "recipe/choices.h"
#include "tensor/queue.h"

namespace capstan {

inline constexpr Precision kPrecisions[] = {Precision::f32_true, Precision::bf16_true,
                                            Precision::bf16_mixed, Precision::fp8_mixed};

struct PrecisionTypes {
  DType compute;  // weights as used, activations
  DType master;   // == compute if there is no separate master
  DType grad;
  DType state;
  bool has_master() const { return master != compute; }
};
PrecisionTypes types_of(Precision precision);

enum class Gradients : uint8_t {
  none,     // inference
  kept,     // held from the start; zeroed when a step begins
  in_step,  // held from the backward pass of their unit to the end of the step: for steps of one
            // micro-batch, where they reuse the memory of consumed activations
};

// The kind of pass that uses a unit.
enum class Pass : uint8_t { forward, backward };

// A model's parameters in memory: for each row of the spec a weight and, depending on the precision
// and the run, a master and a gradient. Frozen rows have only the weight, or its quantized form.
// Indices are those of spec().params. One flat buffer holds each unit's tensors of a kind.
//
// A step, unit by unit:
//
//   begin_step
//   for each micro-batch:   acquire(forward) … release,  then
//                           acquire(backward) … complete, release
//   the optimizer, over owned()
//   end_step
class Parameters {
 public:
  Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients);

  const ModelSpec& spec() const { return spec_; }
  Precision precision() const { return precision_; }
  PrecisionTypes types() const { return types_of(precision_); }
  int count() const { return static_cast<int>(spec_.params.size()); }

  // The weight that the model computes with; absent for index -1, and for a quantized row…
  Tensor weight(int i) const { return i < 0 ? Tensor() : weights_.of(i); }
  // …which has this instead. Null for other rows.
  const QuantizedMatrix* quantized(int i) const;
  // Absent without mixed precision, and for frozen rows.
  Tensor master(int i) const { return masters_.of(i); }
  // The tensor that checkpoints store: the master if there is one, else the weight.
  Tensor stored(int i) const { return master(i) ? master(i) : weight(i); }
  // Absent for index -1, for frozen rows, and while gradients are not held.
  Tensor grad(int i) const { return i < 0 ? Tensor() : grads_.of(i); }

  // The trainable values that this process updates, in the order of the spec. One device owns all.
  const std::vector<Range>& owned() const { return owned_; }

  // Writes the values of one part of a frozen row: x is f32, bf16 or f16, has the part's rows, and
  // is in memory of the queue's device. Quantizes or converts to the row's storage type.
  void store_frozen(Queue& q, int i, int part, Tensor x);

  // Draws initial values according to the spec. Each depends only on the seed, the parameter and
  // the index in it. Throws Fault::bug for a quantized row: those come from an existing model.
  void initialize(Queue& q, uint64_t seed);
  // Initializes only the adapters, on a loaded model.
  void initialize_adapters(Queue& q, uint64_t seed);
  // Recomputes the weights from the masters, after those were loaded. No effect without masters.
  void refresh_weights(Queue& q);

  // Starts a step: zeroes kept gradients, except those that one op overwrites.
  void begin_step(Queue& q);
  // Call before the first op of a pass that uses the unit's weights, and in a backward pass its
  // gradients. A head tied to the embedding also uses that unit.
  void acquire(Queue& q, int unit, Pass pass);
  // Call after the last op of a backward pass that adds to the unit's gradients.
  void complete(Queue& q, int unit);
  // Call after the last op of a pass that uses the unit, once for every acquire.
  void release(Queue& q, int unit, Pass pass);
  // Call after the update: frees gradients that are held only within the step.
  void end_step();

  // A gradient that one op overwrites in every backward pass need not be zeroed. The owner of that
  // op declares it before the first step, and then writes according to grad_write: overwrite in the
  // first backward pass of a step, add in later ones.
  void declare_written_whole(int i) { written_whole_[static_cast<size_t>(i)] = true; }
  Write grad_write(int i) const;

 private:
  void make_quantized(Arena& arena, int unit);
  void initialize(Queue& q, uint64_t seed, const Range& range);
  void begin_grads(int unit);
  Range whole(int i) const { return {i, 0, spec_.params[static_cast<size_t>(i)].shape.numel()}; }
  bool tied_head(int unit) const {
    return unit == spec_.units() - 1 && spec_.head == spec_.embedding;
  }

  ModelSpec spec_;
  Precision precision_;
  Gradients gradients_;
  Arena& arena_;
  UnitTensors weights_, masters_, grads_;
  std::vector<QuantizedMatrix> quantized_;  // by parameter
  std::vector<Buffer> quantized_bytes_;     // by unit: codes and scales of all its rows
  std::vector<Range> owned_;
  std::vector<Tensor> zeroed_;        // a member, so that a step does not allocate
  std::vector<bool> written_whole_;   // by parameter
  std::vector<bool> first_backward_;  // by unit: its gradients have not been written in this step
};

}  // namespace capstan
