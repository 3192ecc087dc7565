#include "model/saved_tensor.h"

#include <algorithm>

namespace capstan {

Range overlap(const Range& a, const Range& b) {
  const int64_t first = std::max(a.first, b.first);
  const int64_t end = std::min(a.first + a.count, b.first + b.count);
  return {a.param, first, a.param == b.param ? std::max<int64_t>(0, end - first) : 0};
}

Range SavedTensor::within(const Range& of_parameter) const {
  const Range common = overlap(range, of_parameter);
  if (common.count == 0) return {range.param, 0, 0};
  const auto index = [&](int64_t value) { return (value - range.first + block - 1) / block; };
  const int64_t first = index(common.first), end = index(common.first + common.count);
  return {range.param, first, end - first};
}

Tensor SavedTensor::whole() const {
  require(pieces.size() == 1 && pieces[0].values.numel() == numel(), Fault::bug,
          "{}: this rank has only part of it", name);
  return pieces[0].values.reshape(shape);
}

SavedTensor saved_part(const Param& param, int index, const Part& part, DType type) {
  const int64_t row = param.shape.numel() / param.shape[0];
  SavedTensor t{.name = part.name,
                .type = type,
                .shape = param.shape,
                .range = {index, part.first_row * row, part.rows * row},
                .pieces = {}};
  t.shape[0] = part.rows;
  return t;
}

SavedTensor only(const SavedTensor& tensor, std::span<const Range> ranges) {
  SavedTensor some = tensor;
  some.pieces.clear();
  for (const Range& range : ranges) {
    const Range wanted = tensor.within(range);
    for (const SavedTensor::Piece& piece : tensor.pieces) {
      const Range held{wanted.param, piece.first, piece.values.numel()};
      if (const Range both = overlap(wanted, held); both.count > 0)
        some.pieces.push_back(
            {both.first, piece.values.rows(both.first - piece.first, both.count)});
    }
  }
  return some;
}

}  // namespace capstan
