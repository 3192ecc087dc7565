#include "model/quantized_share.h"

#include <cstring>
#include <vector>

#include "ops/cpu/dynamic_map.h"
#include "tensor/arena.h"

namespace capstan {
namespace {

constexpr int64_t kBlock = 64;   // values with one scale
constexpr int64_t kGroup = 256;  // scales with one scale of their own

// One tensor of a quantized matrix, in host memory.
template <class T>
class Values {
 public:
  Values(Queue& q, const Tensor& t) : values_(static_cast<size_t>(t ? t.numel() : 0)) {
    if (!values_.empty()) q.download(values_.data(), t);
  }
  Values() = default;

  T operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }
  T last() const { return values_.back(); }
  void append(const Values& from, int64_t first, int64_t n) {
    const auto begin = from.values_.begin() + first;
    values_.insert(values_.end(), begin, begin + n);
  }
  void append(T value) { values_.push_back(value); }
  void upload(Queue& q, const Tensor& to) const {
    require(to.numel() == static_cast<int64_t>(values_.size()), Fault::bug,
            "a share of {} values has room for {}", values_.size(), to.numel());
    q.upload(to, values_.data());
  }

 private:
  std::vector<T> values_;
};

int64_t blocks_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// A tensor that is quantized whole.
class Whole {
 public:
  Whole(Queue& q, Quantize kind, const Tensor& x) : heap_(Arena::Heap{}, q.device()) {
    const QuantizedSizes s = quantized_sizes(kind, x.dim(0), x.dim(1));
    const auto make = [&](DType type, int64_t n) {
      buffers_.push_back(heap_.make(Category::weights, type, {n}, "a tensor, quantized"));
      return *buffers_.back();
    };
    part_.rows = x.dim(0);
    part_.packed = make(DType::u8, s.packed);
    part_.absmax = make(s.absmax_type, s.absmax);
    if (s.scale > 0) part_.scale = make(DType::f32, s.scale);
    quantize(q, {.kind = kind, .shape = x.shape(), .count = 1, .parts = {part_}}, 0, x);
  }
  const QuantizedPart& part() const { return part_; }

 private:
  Arena heap_;
  std::vector<Buffer> buffers_;
  QuantizedPart part_;
};

void keep_rows_of_int8(Queue& q, const QuantizedPart& to, const QuantizedPart& from, int64_t values,
                       const TensorCut& cut) {
  const Values<uint8_t> packed(q, from.packed);
  const Values<float> absmax(q, from.absmax);
  Values<uint8_t> own;
  cut.for_runs(0, values, [&](int64_t, int64_t at, int64_t n) { own.append(packed, at, n); });
  Values<float> scales;
  scales.append(absmax, cut.first / cut.columns, to.rows);
  own.upload(q, to.packed);
  scales.upload(q, to.absmax);
}

// The scales of the blocks of a share, from those in two steps.
Values<float> widened_scales(Queue& q, const QuantizedPart& from, int64_t values,
                             const TensorCut& cut) {
  const Values<uint8_t> codes(q, from.absmax);
  const Values<float> scale(q, from.scale);
  const cpu::DynamicMap& map = cpu::DynamicMap::with_sign();
  Values<float> all;
  cut.for_runs(0, values, [&](int64_t, int64_t at, int64_t n) {
    for (int64_t b = at / kBlock; b < at / kBlock + blocks_of(n, kBlock); ++b) {
      // Two roundings, as wherever such scales are used.
      const volatile float product = map[codes[b]] * scale[b / kGroup];
      all.append(product + scale.last());
    }
  });
  return all;
}

void keep_blocks(Queue& q, const QuantizedPart& to, const QuantizedPart& from, int64_t values,
                 const TensorCut& cut) {
  const Values<uint8_t> packed(q, from.packed);
  Values<uint8_t> own;
  cut.for_runs(0, values,
               [&](int64_t, int64_t at, int64_t n) { own.append(packed, at / 2, (n + 1) / 2); });
  own.upload(q, to.packed);
  if (from.scale && !to.scale) return widened_scales(q, from, values, cut).upload(q, to.absmax);
  const auto keep = [&](auto scales) {
    decltype(scales) some;
    cut.for_runs(0, values, [&](int64_t, int64_t at, int64_t n) {
      some.append(scales, at / kBlock, blocks_of(n, kBlock));
    });
    some.upload(q, to.absmax);
  };
  if (!to.scale) return keep(Values<float>(q, from.absmax));
  keep(Values<uint8_t>(q, from.absmax));
  const Values<float> groups(q, from.scale);
  Values<float> some;
  some.append(groups, cut.first / kBlock / kGroup, to.scale.numel() - 1);
  some.append(groups.last());
  some.upload(q, to.scale);
}

}  // namespace

void quantize_share(Queue& q, const QuantizedMatrix& to, Quantize kind, const Tensor& x,
                    const TensorCut& cut) {
  const Whole whole(q, kind, x);
  const QuantizedPart& part = to.parts[0];
  const int64_t values = part.rows * to.shape[1];
  if (kind == Quantize::int8) return keep_rows_of_int8(q, part, whole.part(), values, cut);
  keep_blocks(q, part, whole.part(), values, cut);
}

}  // namespace capstan
