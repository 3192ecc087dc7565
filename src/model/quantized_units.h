#pragma once

#include <array>
#include <vector>

#include "comm/ranks.h"
#include "model/spec.h"
#include "ops/quantize.h"
#include "tensor/arena.h"

namespace capstan {

// Quantized weights, held and released unit by unit: the codes and scales of a unit's rows in one
// buffer of bytes. Among several ranks its size is a multiple of their number: each has an equal
// slice, which may be kept while the whole comes and goes.
class QuantizedUnits {
 public:
  // Lays out the quantized rows; does not allocate yet.
  QuantizedUnits(const ModelSpec& spec, const Ranks& ranks);

  bool empty(int unit) const { return at(unit).bytes == 0; }
  // As in UnitTensors.
  bool hold(Arena& arena, int unit);
  void hold_slice(Arena& arena, int unit);
  void release(int unit);

  // Null for a row that is not quantized. Its tensors are absent while the unit is not held.
  const QuantizedMatrix* of(int param) const;
  Tensor flat(int unit) const { return *at(unit).whole; }
  Tensor slice(int unit) const { return *at(unit).slice; }

  // Quantizes x, the tensor of the checkpoint that one part of a row is a share of: into the whole,
  // if it is held, else what of it is in this rank's slice, with temporary memory for the tensor.
  void store(Queue& q, int param, int part, Tensor x) const;

 private:
  struct Unit {
    int64_t bytes = 0;
    Buffer whole, slice;
  };
  const Unit& at(int unit) const { return units_[static_cast<size_t>(unit)]; }
  void place(int unit);  // sets the tensors of its rows

  const ModelSpec& spec_;
  Ranks ranks_;
  std::vector<Unit> units_;
  std::vector<QuantizedMatrix> matrices_;      // by parameter
  std::vector<std::array<int64_t, 3>> first_;  // by parameter: where its parts begin in the unit
};

}  // namespace capstan
