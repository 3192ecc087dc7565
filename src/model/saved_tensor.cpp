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

const Part& part_of(const Param& param, const Range& range) {
  return *std::find_if(param.parts.begin(), param.parts.end(), [&](const Part& part) {
    return range.first < (part.first_row + part.rows) * param.columns();
  });
}

SavedTensor saved_part(const Param& param, int index, int part, DType type) {
  const Part& p = param.parts[static_cast<size_t>(part)];
  const int64_t row = param.columns();
  return {.name = p.name,
          .type = type,
          .shape = p.whole,
          .range = {index, p.first_row * row, p.rows * row},
          .part = part,
          .cut = cut_of(param, p),
          .pieces = {}};
}

bool cuts_blocks(const SavedTensor& t, int64_t block) {
  const TensorCut& cut = t.cut;
  if (!cut.consecutive())
    return cut.first % block != 0 || cut.width % block != 0 || cut.columns % block != 0;
  const bool at_end = cut.first + t.range.count == t.numel();
  return cut.first % block != 0 || (!at_end && t.range.count % block != 0);
}

SavedTensor scales_of(const SavedTensor& tensor, int64_t block) {
  require(!cuts_blocks(tensor, block), Fault::bug, "{}: a share of it cuts a block of {} values",
          tensor.name, block);
  SavedTensor scales = tensor;
  scales.type = DType::f32;
  scales.shape = {(tensor.numel() + block - 1) / block};
  scales.block = block;
  scales.cut.first /= block;
  if (!scales.cut.consecutive()) {
    scales.cut.width /= block;
    scales.cut.columns /= block;
  }
  return scales;
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
