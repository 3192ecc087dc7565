#pragma once

#include <string_view>
#include <vector>

#include "comm/mesh.h"
#include "model/quantized_units.h"
#include "model/sharding.h"
#include "model/units.h"
#include "ops/linear.h"
#include "recipe/choices.h"
#include "tensor/queue.h"

namespace capstan {

inline constexpr Precision kPrecisions[] = {Precision::f32_true,   Precision::bf16_true,
                                            Precision::bf16_mixed, Precision::f16_true,
                                            Precision::f16_mixed,  Precision::fp8_mixed};

struct PrecisionTypes {
  DType compute;  // weights as used, activations
  DType master;   // == compute if there is no separate master
  DType grad;
  DType state;
  bool has_master() const { return master != compute; }
};
PrecisionTypes types_of(Precision precision);

// The precision with bf16 for one with f16, and the other way round; others stay.
Precision with_bf16(Precision precision);
Precision with_f16(Precision precision);
// Throws Fault::device for bf16 on a GPU without it, naming what it has instead.
void require_precision(Precision precision, Device device);

enum class Gradients : uint8_t {
  none,     // inference
  kept,     // held from the start; zeroed when a step begins
  in_step,  // held from the backward pass of their unit to the end of the step: for steps of one
            // micro-batch, where they reuse the memory of consumed activations
};

// The kind of pass that uses a unit.
enum class Pass : uint8_t { forward, backward };

// The units that each stage of a pipeline has: by stage, and by unit. Empty: there is one stage.
using StageUnits = std::vector<std::vector<bool>>;

// A model's parameters in memory: for each row of the spec a weight and, depending on the precision
// and the run, a master and a gradient. Frozen rows have only the weight, or its quantized form.
// Indices are those of spec().params. One flat buffer holds each unit's tensors of a kind.
//
// A step, unit by unit:
//
//   begin_step
//   for each micro-batch:   begin_micro_batch,
//                           acquire(forward) … release,  then
//                           acquire(backward) … complete, release,
//                           end_micro_batch
//   the optimizer, over updated()
//   end_update, end_step
//
// The ranks of `mesh` share the work of a step. Of a pipeline, each stage has its units alone.
// Those that share the data keep, according to `sharding`, all of a kind or their slices. Whole
// weights of a sharded unit exist from acquire to release, whole gradients from acquire until their
// sum with the other ranks' is complete. All of them must pass over the same units in the same
// order.
//
// A head that is tied to the embedding needs it in the last stage, too: both stages have it, add
// their gradients (end_gradients) and update it alike. The first one counts and saves it.
//
// Of ranks that share each layer, each has its share (the spec's). What several of them have
// (Part::copies) they update alike: its gradient is the sum of what each of them has computed,
// which complete() makes.
class Parameters {
 public:
  // Offloaded masters are in `host`, by default the same arena. Destroying it while a sum or gather
  // is pending, as an exception does, ends the ranks' groups.
  Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients,
             const Mesh& mesh = {}, const Sharding& sharding = {}, Arena* host = nullptr,
             const StageUnits& stages = {});
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  const ModelSpec& spec() const { return spec_; }
  Precision precision() const { return precision_; }
  PrecisionTypes types() const { return types_of(precision_); }
  int count() const { return static_cast<int>(spec_.params.size()); }

  // The weight that the model computes with; absent for index -1, and for a quantized row…
  Tensor weight(int i) const { return i < 0 ? Tensor() : weights_of(i).of(i); }
  // …which has this instead. Null for other rows.
  const QuantizedMatrix* quantized(int i) const { return i < 0 ? nullptr : quantized_.of(i); }
  // Absent without mixed precision, and for frozen rows.
  Tensor master(int i) const { return masters_.of(i); }
  // The tensor that checkpoints store: the master if there is one, else the weight.
  // Fault::bug if this rank has only part of it.
  Tensor stored(int i) const;
  // All values of such tensors that this rank keeps, in the order of the spec; not those of
  // quantized rows. Among several ranks, weights that differ from their masters are made from these
  // by refresh_weights.
  const std::vector<Range>& stored_ranges() const { return stored_ranges_; }
  Tensor stored(const Range& range) const;
  // Absent for index -1, for frozen rows, and while gradients are not held.
  Tensor grad(int i) const { return i < 0 ? Tensor() : grads_.of(i); }

  // Trainable values, in the order of the spec: those that this rank counts (in the norm of the
  // gradients), so that each is counted by one rank; and those that it updates. One rank does all.
  const std::vector<Range>& owned() const { return owned_; }
  // Of ranks that share each layer: of that rank's parameters, within one part each.
  std::vector<Range> owned_by(int rank) const;
  const std::vector<Range>& updated() const { return updated_; }
  // The table of another rank: its share of each layer.
  const ModelSpec& spec_of(int rank) const;
  // The values of such a range, where this rank keeps them; a master may be absent.
  Tensor weight(const Range& range) const { return weights_.values(range); }
  Tensor master(const Range& range) const { return masters_.values(range); }
  Tensor grad(const Range& range) const { return grads_.values(range); }
  const Mesh& mesh() const { return mesh_; }
  // Those of the mesh, and of the groups of ranks that have the same key heads.
  Mesh::Digests digests() const;
  double waited() const;
  const Communicator& group() const { return mesh_.all(); }
  // The most that ranks that share each layer add to make the gradients of what they all have; the
  // group needs room for it.
  int64_t copied_bytes() const;
  bool has(int unit) const { return units_[static_cast<size_t>(unit)]; }  // this stage

  // Writes the values of one part of a frozen row: x is f32, bf16 or f16, the checkpoint's tensor,
  // and in memory of the queue's device. Quantizes or converts to the row's storage type.
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
  // Frame a micro-batch. Among several ranks, gradients are summed over the ranks in the `last` one
  // of a step, or in each if they are sharded; the sums are complete after end_micro_batch.
  void begin_micro_batch(bool first, bool last);
  void end_micro_batch(Queue& q);
  // Call after all micro-batches of a step, before the gradients are used.
  void end_gradients(Queue& q);
  // A number for where the passes of this micro-batch call collectives and whether they replace
  // gradients, beside what is the same throughout a run: part of the key of its graph.
  int64_t schedule_key() const;
  // The same for one of the passes alone.
  int64_t schedule_key(Pass pass) const;
  // Call before the first op of a pass that uses the unit's weights, and in a backward pass its
  // gradients. A head tied to the embedding also uses that unit.
  void acquire(Queue& q, int unit, Pass pass);
  // Call after the last op of a backward pass that adds to the unit's gradients.
  void complete(Queue& q, int unit);
  // Call after the last op of a pass that uses the unit, once for every acquire.
  void release(Queue& q, int unit, Pass pass);
  // Call after the update: every rank gets the weights that others have updated, each unit by the
  // time that a pass acquires it.
  void end_update(Queue& q);
  // Waits until it has all of them: before weights are read outside of a pass, and at the end.
  void settle(Queue& q);
  // Call at the end: frees gradients that are held only within the step.
  void end_step();

  // A gradient that one op overwrites in every backward pass need not be zeroed. The owner of that
  // op declares it before the first step, and then writes according to grad_write: overwrite in the
  // first backward pass of a step, add in later ones.
  void declare_written_whole(int i) { written_whole_[static_cast<size_t>(i)] = true; }
  Write grad_write(int i) const;
  // For a rank without a micro-batch: makes the gradients of an acquired unit zero, if nothing has
  // been added to them in this step.
  void zero_grads(Queue& q, int unit);

 private:
  const UnitTensors& weights_of(int i) const {
    return spec_.params[static_cast<size_t>(i)].trainable ? weights_ : frozen_;
  }
  void initialize(Queue& q, uint64_t seed, const Range& range, Tensor values);
  // … of consecutive values of a parameter of the whole model.
  void initialize(Queue& q, uint64_t seed, const Param& p, const Range& range, Tensor values);
  void initialize_trainable(Queue& q, uint64_t seed, bool adapters);
  void acquire_weights(Queue& q, int unit);
  void release_weights(int unit);
  void gather(Queue& q, int unit);  // begins; does nothing if it is held
  void gather_ahead(Queue& q, int unit, Pass pass);
  void reduce(Queue& q, int unit);  // begins
  void finish_reduction(Queue& q);
  void finish_exchange(Queue& q);
  void begin_grads(int unit);
  void make_copies(Arena& arena);
  void sum_copies(Queue& q, int unit);
  bool shares_tied() const;  // trained, and this stage is one of two that have it
  bool tied_head(int unit) const {
    return unit == spec_.units() - 1 && spec_.head == spec_.embedding;
  }

  ModelSpec spec_;
  Precision precision_;
  Gradients gradients_;
  Arena& arena_;
  Mesh mesh_;
  StageUnits stages_;
  std::vector<bool> units_;  // that this stage has
  Communicator group_;       // its ranks
  Sharding sharding_;
  Communicator shards_;    // the ranks that together keep one model: of this rank's replica
  Communicator replicas_;  // those that keep the same slices as this one
  UnitTensors weights_, frozen_, masters_, grads_;  // weights_: of trainable rows
  QuantizedUnits quantized_;
  std::vector<Range> owned_, updated_, all_trainable_;
  std::vector<Range> frozen_ranges_, stored_ranges_;  // that this rank keeps
  struct Gathered {  // a unit of sharded weights, while passes use it
    Work weights, frozen, quantized;
    int users = 0;
  };
  std::vector<Gathered> gathered_;  // by unit
  // Gradients that several of the ranks that share each layer have parts of: those of all of them,
  // and those of ranks with the same key heads.
  struct Copies {
    Communicator ranks;
    std::vector<std::vector<Range>> ranges;  // by unit
    Buffer sums, room;                       // of a unit, one after the other
  };
  std::vector<Copies> copies_;
  std::vector<ModelSpec> specs_;     // by rank among those that share each layer, if several
  std::vector<UnitTensors> shares_;  // the layouts of their units
  Buffer room_, tied_room_;          // the groups'
  std::vector<Work> reductions_;     // by unit, of gradients
  int reducing_ = -1;                // the unit whose sharded gradients are being summed
  int exchanging_ = -1;              // … and whose sums are being added over the replicas
  bool first_micro_ = true, last_micro_ = true;
  std::vector<Tensor> zeroed_;        // a member, so that a step does not allocate
  std::vector<bool> written_whole_;   // by parameter
  std::vector<bool> first_backward_;  // by unit: its gradients have not been written in this step
};

}  // namespace capstan
