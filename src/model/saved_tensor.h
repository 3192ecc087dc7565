#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/units.h"

namespace capstan {

// A tensor of a checkpoint: a part of a parameter, or an optimizer's state for one. Its name, type
// and shape do not depend on the ranks that hold it.
struct SavedTensor {
  std::string name;
  DType type{};
  Shape shape;
  Range range;        // the values of the parameter that it belongs to
  int64_t block = 1;  // so many of them for each value of the tensor: more than 1 for scales

  // Consecutive values that this rank has in memory, as one row.
  struct Piece {
    int64_t first;  // index in the tensor, in row-major order
    Tensor values;
  };
  std::vector<Piece> pieces;

  int64_t numel() const { return shape.numel(); }
  int64_t nbytes() const { return numel() * size_of(type); }
  // The values of the tensor that belong to a range of its parameter, as {param, first, count} of
  // the tensor itself. A block belongs where its first value does.
  Range within(const Range& of_parameter) const;
  // The whole tensor in its shape. Fault::bug if this rank has only part of it.
  Tensor whole() const;
};

// The part of a parameter, without pieces.
SavedTensor saved_part(const Param& param, int index, const Part& part, DType type);

// The tensor with those pieces alone, or those parts of them, that belong to the ranges.
SavedTensor only(const SavedTensor& tensor, std::span<const Range> ranges);

// The values that two ranges of one parameter have in common; count 0 if there are none.
Range overlap(const Range& a, const Range& b);

}  // namespace capstan
