#pragma once

#include <cstdint>
#include <vector>

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
class UnitTensors {
 public:
  enum class Layout : uint8_t { flat, apart };

  // Lays out the parameters marked in `has`; does not allocate yet.
  UnitTensors(const ModelSpec& spec, DType type, const std::vector<bool>& has, Layout layout,
              Category category, const char* name);

  // Allocates a unit's memory, if it has any parameters and is not already held. Returns whether it
  // allocated.
  bool hold(Arena& arena, int unit);
  void release(int unit);
  bool holds(int unit) const { return units_[static_cast<size_t>(unit)].held; }

  // A parameter's tensor; absent if it is not of this kind, or its unit is not held.
  const Tensor& of(int param) const { return views_[static_cast<size_t>(param)]; }

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
  };

  DType type_;
  Layout layout_;
  Category category_;
  const char* name_;
  std::vector<Unit> units_;
  std::vector<Tensor> views_;  // by parameter
};

}  // namespace capstan
