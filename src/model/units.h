#pragma once

#include <cstdint>
#include <vector>

#include "comm/ranks.h"
#include "model/spec.h"
#include "tensor/arena.h"

namespace capstan {

// Consecutive values of one parameter. `first` is an index into the parameter's whole tensor in
// row-major order, even if this process holds only part of it.
struct Range {
  int param = 0;
  int64_t first = 0, count = 0;
};
// The values of a contiguous tensor in a range, as one row.
Tensor slice(const Tensor& whole, const Range& range);

// Tensors of one kind (weights, masters or gradients), held and released unit by unit. A unit is
// either one flat buffer, with parameters in the order of the spec, each aligned to
// kBufferAlignment; or one buffer per parameter, for tensors that come and go within a step, since
// smaller buffers fit into smaller gaps.
//
// Among several ranks every unit is flat and has the same number of values in every kind, a
// multiple of the ranks: each has an equal slice, which may be kept while the whole comes and goes.
class UnitTensors {
 public:
  enum class Layout : uint8_t { flat, apart };

  // Lays out the parameters marked in `has`; does not allocate yet. Slices can be cut into equal
  // `pieces`.
  UnitTensors(const ModelSpec& spec, DType type, const std::vector<bool>& has, Layout layout,
              Category category, const char* name, const Ranks& ranks = {}, int pieces = 1);

  // Allocates a unit's memory, if it has any parameters and is not already held. Returns whether it
  // allocated.
  bool hold(Arena& arena, int unit);
  void release(int unit);
  bool holds(int unit) const { return at(unit).held; }
  int64_t flat_bytes(int unit) const { return at(unit).size * size_of(type_); }
  bool empty(int unit) const { return at(unit).places.empty(); }

  // Allocates this rank's slice of a unit besides the whole, which may then come and go.
  void hold_slice(Arena& arena, int unit);

  // A parameter's tensor; absent if it is not of this kind, or its unit is not held.
  const Tensor& of(int param) const { return views_[static_cast<size_t>(param)]; }
  // All values of a unit that is held and flat, padding included.
  Tensor flat(int unit) const { return *at(unit).buffers[0]; }
  // This rank's slice of a unit: its own memory if it has any, else part of the whole.
  Tensor slice(int unit) const;
  // Values of a range that lies within the slice, or within the whole if that is held; absent for a
  // parameter that is not of this kind.
  Tensor values(const Range& range) const;

  // Appends the ranges of all parameters of a unit, or of one rank's slice.
  void add_ranges(std::vector<Range>& to, int unit) const;
  void add_ranges(std::vector<Range>& to, int unit, int rank) const;

 private:
  struct Place {
    int param;
    int64_t first;  // offset in the unit's flat buffer, in values
    Shape shape;
  };
  struct Unit {
    std::vector<Place> places;
    int64_t size = 0;  // values, including padding
    bool held = false;
    std::vector<Buffer> buffers;  // one, or one per place
    Buffer slice;
  };
  const Unit& at(int unit) const { return units_[static_cast<size_t>(unit)]; }
  int64_t slice_size(const Unit& unit) const { return unit.size / ranks_.size; }
  int64_t slice_begin(const Unit& unit) const { return ranks_.rank * slice_size(unit); }
  static void add_ranges(std::vector<Range>& to, const Unit& unit, int64_t begin, int64_t end);
  int64_t padded(int64_t values) const;

  DType type_;
  Layout layout_;
  Category category_;
  const char* name_;
  Ranks ranks_;
  std::vector<Unit> units_;
  std::vector<Tensor> views_;            // by parameter
  std::vector<int> unit_of_, place_of_;  // by parameter; -1: not of this kind
};

}  // namespace capstan
