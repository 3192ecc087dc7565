#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/tensor_cut.h"
#include "model/units.h"

namespace capstan {

// A tensor of a checkpoint: a part of a parameter, or an optimizer's state for one. Its name, type
// and shape do not depend on the ranks that hold it. Of ranks that share each layer, each has its
// own share of the tensor, in which values are counted here; `cut` says where they are in the
// whole.
struct SavedTensor {
  std::string name;
  DType type{};
  Shape shape;        // of the whole tensor
  Range range;        // the values of this rank's parameter that it belongs to
  int part = 0;       // which of the parameter's parts that is
  int64_t block = 1;  // so many of them for each value of the tensor: more than 1 for scales
  TensorCut cut;      // of the share

  // Consecutive values of the share that this rank has in memory, as one row.
  struct Piece {
    int64_t first;
    Tensor values;
  };
  std::vector<Piece> pieces;

  int64_t numel() const { return shape.numel(); }  // of the whole
  int64_t nbytes() const { return numel() * size_of(type); }
  int64_t share() const { return (range.count + block - 1) / block; }
  // The values of the share that belong to a range of its parameter, as {param, first, count} of
  // the share itself. A block belongs where its first value does.
  Range within(const Range& of_parameter) const;
  // The whole tensor in its shape. Fault::bug if this rank has only part of it.
  Tensor whole() const;
};

// The part in which a range of a parameter begins.
const Part& part_of(const Param& param, const Range& range);

// Part number `part` of a parameter, without pieces.
SavedTensor saved_part(const Param& param, int index, int part, DType type);
// The scales of that tensor, one for each block of so many values. Fault::bug if shares would cut a
// block; cuts_blocks tells.
SavedTensor scales_of(const SavedTensor& tensor, int64_t block);
bool cuts_blocks(const SavedTensor& tensor, int64_t block);

// The tensor with those pieces alone, or those parts of them, that belong to the ranges.
SavedTensor only(const SavedTensor& tensor, std::span<const Range> ranges);

// The values that two ranges of one parameter have in common; count 0 if there are none.
Range overlap(const Range& a, const Range& b);

}  // namespace capstan
