#include "model/quantized_units.h"

#include <algorithm>

#include "model/quantized_share.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

constexpr int64_t kSliceBytes = 256;  // bytes; slices begin at multiples of it

// The bytes of a part's codes and scales, each aligned.
int64_t part_bytes(Quantize kind, int64_t rows, int64_t cols) {
  const QuantizedSizes s = quantized_sizes(kind, rows, cols);
  const auto bytes = [](DType type, int64_t count) {
    return aligned_to_buffers(count * size_of(type));
  };
  return bytes(DType::u8, s.packed) + bytes(s.absmax_type, s.absmax) + bytes(DType::f32, s.scale);
}

// Sets the tensors of a part whose bytes begin at `first`; without `bytes`, they are absent.
void place_part(QuantizedMatrix& m, int part, int64_t first, const Tensor& bytes) {
  QuantizedPart& to = m.parts[static_cast<size_t>(part)];
  const QuantizedSizes s = quantized_sizes(m.kind, to.rows, m.shape[1]);
  const auto next = [&](DType type, int64_t count) -> Tensor {
    const int64_t begin = first, size = count * size_of(type);
    first += aligned_to_buffers(size);
    return count > 0 && bytes ? bytes.rows(begin, size).viewed_as(type) : Tensor();
  };
  to.packed = next(DType::u8, s.packed);
  to.absmax = next(s.absmax_type, s.absmax);
  to.scale = next(DType::f32, s.scale);
}

}  // namespace

QuantizedUnits::QuantizedUnits(const ModelSpec& spec, const Ranks& ranks)
    : spec_(spec),
      ranks_(ranks),
      units_(static_cast<size_t>(spec.units())),
      matrices_(spec.params.size()),
      first_(spec.params.size()) {
  for (size_t i = 0; i < spec.params.size(); ++i) {
    const Param& param = spec.params[i];
    if (param.quantize == Quantize::none) continue;
    QuantizedMatrix& m = matrices_[i];
    m.kind = param.quantize;
    m.shape = param.shape;
    require(param.parts.size() <= m.parts.size(), Fault::bug,
            "{}: cannot quantize a parameter of {} parts", param.name, param.parts.size());
    int64_t& bytes = units_[static_cast<size_t>(param.unit)].bytes;
    for (const Part& part : param.parts) {
      const auto k = static_cast<size_t>(m.count++);
      m.parts[k].first_row = part.first_row;
      m.parts[k].rows = part.rows;
      first_[i][k] = bytes;
      bytes += part_bytes(m.kind, part.rows, param.shape[1]);
    }
  }
  const int64_t multiple = ranks.size > 1 ? ranks.size * kSliceBytes : 1;
  for (Unit& unit : units_) unit.bytes = (unit.bytes + multiple - 1) / multiple * multiple;
}

void QuantizedUnits::place(int unit) {
  const Tensor bytes = at(unit).whole ? *at(unit).whole : Tensor();
  for (size_t i = 0; i < matrices_.size(); ++i)
    if (spec_.params[i].unit == unit)
      for (int part = 0; part < matrices_[i].count; ++part)
        place_part(matrices_[i], part, first_[i][static_cast<size_t>(part)], bytes);
}

bool QuantizedUnits::hold(Arena& arena, int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (u.bytes == 0 || u.whole) return false;
  u.whole = arena.make(Category::weights, DType::u8, {u.bytes}, "quantized weights");
  place(unit);
  return true;
}

void QuantizedUnits::hold_slice(Arena& arena, int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (u.bytes == 0) return;
  u.slice = arena.make(Category::weights, DType::u8, {u.bytes / ranks_.size}, "quantized weights");
}

void QuantizedUnits::release(int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (!u.whole) return;
  u.whole.release();
  place(unit);
}

const QuantizedMatrix* QuantizedUnits::of(int param) const {
  const QuantizedMatrix& m = matrices_[static_cast<size_t>(param)];
  return m.kind == Quantize::none ? nullptr : &m;
}

void QuantizedUnits::store(Queue& q, int param, int part, Tensor x) const {
  const auto i = static_cast<size_t>(param), k = static_cast<size_t>(part);
  const Unit& unit = at(spec_.params[i].unit);
  const bool whole_tensor = x.shape() == Shape{matrices_[i].parts[k].rows, matrices_[i].shape[1]};
  if (unit.whole && whole_tensor) return quantize(q, matrices_[i], part, x);
  QuantizedMatrix m{
      .kind = matrices_[i].kind, .shape = matrices_[i].shape, .count = 1, .parts = {}};
  m.shape[0] = m.parts[0].rows = matrices_[i].parts[k].rows;
  const int64_t bytes = part_bytes(m.kind, m.shape[0], m.shape[1]);
  Arena heap(Arena::Heap{}, q.device());
  const Buffer own = heap.make(Category::weights, DType::u8, {bytes}, "a part, quantized");
  place_part(m, 0, 0, own);
  const Param& p = spec_.params[i];
  if (whole_tensor)
    quantize(q, m, 0, x);
  else
    quantize_share(q, m, p.quantized_as, x, cut_of(p, p.parts[k]));
  const Tensor to = unit.whole ? *unit.whole : *unit.slice;
  const int64_t each = unit.whole ? unit.bytes : unit.bytes / ranks_.size;
  const int64_t mine = unit.whole ? 0 : ranks_.rank * each;
  const int64_t begin = std::max(mine, first_[i][k]),
                end = std::min(mine + each, first_[i][k] + bytes);
  if (begin < end)
    copy(q, to.rows(begin - mine, end - begin), own->rows(begin - first_[i][k], end - begin));
  q.synchronize();
}

}  // namespace capstan
