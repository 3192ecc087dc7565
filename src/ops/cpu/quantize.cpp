#include "ops/cpu/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/subnormals.h"
#include "ops/cpu/dynamic_map.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

constexpr int64_t kBlock = 64, kScaleBlock = 256;
// Rounds the product to f32 before it is added, so that the compiler cannot fuse them.
float product(float a, float b) {
  const volatile float rounded = a * b;
  return rounded;
}

constexpr float kTiny = 1e-38f;  // replaces the maximum of a block of zeros

// Sixteen values, the boundaries between them in ascending order, and the index of each interval.
struct Code4 {
  std::array<float, 16> values;
  std::array<float, 15> bounds{};
  std::array<uint8_t, 16> order{};

  explicit Code4(const std::array<float, 16>& v) : values(v) {
    for (uint8_t i = 0; i < 16; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
    for (size_t i = 0; i < 15; ++i) bounds[i] = (values[order[i]] + values[order[i + 1]]) / 2;
  }

  // The nearest code for each value of a block; ties go to the lower.
  void nearest(const float (&x)[kBlock], uint8_t (&index)[kBlock]) const {
    int32_t below[kBlock] = {};
    for (const float bound : bounds)
#pragma omp simd
      for (int64_t i = 0; i < kBlock; ++i) below[i] += x[i] > bound ? 1 : 0;
    for (int64_t i = 0; i < kBlock; ++i) index[i] = order[static_cast<size_t>(below[i])];
  }
};

// Quantiles of a normal distribution, scaled to [-1, 1] (Dettmers et al., 2023, appendix E).
const Code4 kNf4({-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                  -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                  0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
                  0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                  0.7229568362236023f, 1.0f});

Code4 make_fp4() {
  std::array<float, 16> v{};
  const std::array<float, 8> twelfths = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
  for (size_t i = 0; i < 8; ++i) {
    v[i] = twelfths[i] / 12;
    v[i + 8] = i == 0 ? 0.0f : -v[i];
  }
  return Code4(v);
}
const Code4 kFp4 = make_fp4();

bool is_nf4(Quantize kind) {
  return kind == Quantize::nf4 || kind == Quantize::nf4_dq;
}

// The largest magnitude; NaN if any value is NaN, so that dequantization shows it.
template <class X>
float largest(const X* x, int64_t n) {
  float most = 0;
  int bad = 0;
#pragma omp simd reduction(max : most) reduction(| : bad)
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::abs(static_cast<float>(x[i]));
    most = size > most ? size : most;
    bad |= size != size ? 1 : 0;
  }
  return bad == 0 ? most : std::numeric_limits<float>::quiet_NaN();
}

template <class X>
void quantize_int8(const QuantizedPart& p, const X* x, int64_t cols) {
  parallel_for(p.rows, grain_of(cols), [&](int64_t begin, int64_t end) {
    const ExactSubnormals exact;
    for (int64_t r = begin; r < end; ++r) {
      const float most = largest(x + r * cols, cols), factor = 127.0f / most;
      p.absmax.as<float>()[r] = most;
      uint8_t* out = p.packed.as<uint8_t>() + r * cols;
      for (int64_t c = 0; c < cols; ++c) {
        const float steps = std::nearbyint(static_cast<float>(x[r * cols + c]) * factor);
        out[c] = static_cast<uint8_t>(most > 0 ? static_cast<int8_t>(steps) : int8_t{0});
      }
    }
  });
}

// Blocks begin at even indices, so that no two blocks share a byte.
template <class X>
void pack_4bit(const Code4& code, const QuantizedPart& p, const X* x, int64_t n) {
  const int64_t blocks = p.absmax.numel();
  uint8_t* const packed = p.packed.as<uint8_t>();
  parallel_for(blocks, grain_of(kBlock), [&](int64_t begin, int64_t end) {
    const ExactSubnormals exact;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock, count = std::min(kBlock, n - first);
      const float most = std::max(largest(x + first, count), kTiny), inverse = 1.0f / most;
      float scaled[kBlock] = {};
      uint8_t index[kBlock];
      for (int64_t i = 0; i < count; ++i) {
        const auto v = static_cast<float>(x[first + i]);
        // bitsandbytes divides in a shorter last block, but multiplies in the others.
        scaled[i] = std::clamp(count < kBlock ? v / most : v * inverse, -1.0f, 1.0f);
      }
      code.nearest(scaled, index);
      for (int64_t i = 0; i < count; i += 2)
        packed[(first + i) / 2] = static_cast<uint8_t>((index[i] << 4) | index[i + 1]);
    }
  });
}

// The maximum of block b; kTiny for a shorter last block of zeros.
template <class X>
float block_absmax(const X* x, int64_t n, int64_t b) {
  const int64_t first = b * kBlock, count = std::min(kBlock, n - first);
  const float most = largest(x + first, count);
  return count < kBlock ? std::max(most, kTiny) : most;
}

template <class X>
void store_absmax(const QuantizedPart& p, const X* x, int64_t n) {
  parallel_for(p.absmax.numel(), grain_of(kBlock), [&](int64_t begin, int64_t end) {
    const ExactSubnormals exact;
    for (int64_t b = begin; b < end; ++b) p.absmax.as<float>()[b] = block_absmax(x, n, b);
  });
}

// Reads the values twice instead of storing the scales in f32.
template <class X>
void store_absmax_dq(const QuantizedPart& p, const X* x, int64_t n) {
  const int64_t blocks = p.absmax.numel(), groups = p.scale.numel() - 1;
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += block_absmax(x, n, b);
  const auto offset = static_cast<float>(sum / static_cast<double>(blocks));
  p.scale.as<float>()[groups] = offset;
  const DynamicMap& map = DynamicMap::with_sign();
  parallel_for(groups, 1, [&](int64_t begin, int64_t end) {
    const ExactSubnormals exact;
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = g * kScaleBlock, count = std::min(kScaleBlock, blocks - first);
      float rest[kScaleBlock];
      for (int64_t i = 0; i < count; ++i) rest[i] = block_absmax(x, n, first + i) - offset;
      const float most = largest(rest, count), inverse = 1.0f / std::max(most, kTiny);
      p.scale.as<float>()[g] = most;
      for (int64_t i = 0; i < count; ++i)
        p.absmax.as<uint8_t>()[first + i] = map.nearest(product(rest[i], inverse));
    }
  });
}

const QuantizedPart& part_of(const QuantizedMatrix& m, int64_t row) {
  size_t p = 0;
  while (row >= m.parts[p].first_row + m.parts[p].rows) ++p;
  return m.parts[p];
}

float absmax_of(const QuantizedPart& p, const DynamicMap& map, int64_t block) {
  if (!p.scale) return p.absmax.as<float>()[block];
  const float* scale = p.scale.as<float>();
  return product(map[p.absmax.as<uint8_t>()[block]], scale[block / kScaleBlock]) +
         scale[p.scale.numel() - 1];
}

}  // namespace

const std::array<float, 16>& code_values(Quantize kind) {
  return (is_nf4(kind) ? kNf4 : kFp4).values;
}

void quantize(Quantize kind, const QuantizedPart& part, const Tensor& x_) {
  with_type(x_.dtype(), [&]<class X>() {
    const X* x = x_.as<X>();
    if (kind == Quantize::int8) return quantize_int8(part, x, x_.dim(1));
    pack_4bit(is_nf4(kind) ? kNf4 : kFp4, part, x, x_.numel());
    if (part.scale)
      store_absmax_dq(part, x, x_.numel());
    else
      store_absmax(part, x, x_.numel());
  });
}

void dequantize_row(const QuantizedMatrix& m, int64_t row, int64_t col, int64_t n, float* out) {
  const QuantizedPart& p = part_of(m, row);
  const int64_t first = (row - p.first_row) * m.shape[1] + col;
  const uint8_t* const packed = p.packed.as<uint8_t>();
  if (m.kind == Quantize::int8) {
    const float most = p.absmax.as<float>()[row - p.first_row];
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(static_cast<int8_t>(packed[first + i])) * most *
               7.874015718698502e-3f;  // 1/127
    return;
  }
  const DynamicMap& map = DynamicMap::with_sign();
  const std::array<float, 16>& code = code_values(m.kind);
  for (int64_t at = first; at < first + n;) {
    const int64_t block = at / kBlock, end = std::min(first + n, (block + 1) * kBlock);
    const float most = absmax_of(p, map, block);
    std::array<float, 16> scaled;
    for (size_t i = 0; i < 16; ++i) scaled[i] = code[i] * most;
    float* to = out + (at - first);
    if (at % 2 != 0) *to++ = scaled[packed[at++ / 2] & 15];
    for (; at + 1 < end; at += 2) {
      const uint8_t both = packed[at / 2];
      *to++ = scaled[both >> 4];
      *to++ = scaled[both & 15];
    }
    if (at < end) *to = scaled[packed[at++ / 2] >> 4];
  }
}

void dequantize(const Tensor& y_, const QuantizedMatrix& from, int64_t first) {
  const int64_t cols = from.shape[1];
  constexpr int64_t kPiece = 512;
  with_type(y_.dtype(), [&]<class Y>() {
    parallel_for(y_.dim(0), grain_of(cols), [&](int64_t begin, int64_t end) {
      const ExactSubnormals exact;
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < cols; c += kPiece) {
          float piece[kPiece];
          const int64_t n = std::min(kPiece, cols - c);
          dequantize_row(from, first + r, c, n, piece);
          Y* const y = y_.as<Y>() + r * cols + c;
          for (int64_t i = 0; i < n; ++i) store(y[i], piece[i]);
        }
    });
  });
}

}  // namespace capstan::cpu
