#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"
#include "tensor/arena.h"

namespace capstan {

// Consecutive values of one parameter. `first` counts in the parameter's whole tensor, row after
// row, whatever part of it this process holds.
struct Range {
  int param = 0;
  int64_t first = 0, count = 0;
};
// The values of a contiguous tensor that a range names, as one row.
Tensor slice(const Tensor& whole, const Range& range);

// Tensors of one kind (weights, masters or gradients), held and released unit by unit. A unit is
// one flat buffer, in which each parameter begins at a multiple of kBufferAlignment, in the order
// of the spec; or a buffer for each parameter, for tensors that come and go within a step: smaller
// buffers fit into smaller gaps.
class UnitTensors {
 public:
  enum class Layout : uint8_t { flat, apart };

  // Lays out the parameters that are marked in `has`; takes no memory yet.
  UnitTensors(const ModelSpec& spec, DType type, const std::vector<bool>& has, Layout layout,
              Category category, const char* name);

  // Takes a unit's memory, where it has any parameters and is not held already. Returns whether it
  // took some.
  bool hold(Arena& arena, int unit);
  void release(int unit);
  bool holds(int unit) const { return units_[static_cast<size_t>(unit)].held; }

  // A parameter's tensor; absent where it is not of this kind, or its unit is not held.
  const Tensor& of(int param) const { return views_[static_cast<size_t>(param)]; }

 private:
  struct Place {
    int param;
    int64_t first;  // value of the unit's flat buffer
    Shape shape;
  };
  struct Unit {
    std::vector<Place> places;
    int64_t size = 0;  // values, with padding
    bool held = false;
    std::vector<Buffer> buffers;  // one, or one for each place
  };

  DType type_;
  Layout layout_;
  Category category_;
  const char* name_;
  std::vector<Unit> units_;
  std::vector<Tensor> views_;  // by parameter
};

}  // namespace capstan
