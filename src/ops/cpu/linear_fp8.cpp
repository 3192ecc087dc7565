#include "ops/cpu/linear_fp8.h"

#include <array>

#include "base/fp8.h"
#include "base/parallel.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

// max |m|, or NaN if any value is NaN: larger magnitudes have larger bits.
template <class T>
float amax_of_rows(const Tensor& m) {
  constexpr int64_t kPieces = 256;
  const int64_t rows = m.dim(0), width = m.dim(1), pieces = std::min(rows, kPieces);
  std::array<uint32_t, kPieces> most{};
  parallel_for(
      pieces, grain_of(m.numel() / std::max<int64_t>(1, pieces)), [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          uint32_t top = 0;
          for (int64_t r = rows * piece / pieces; r < rows * (piece + 1) / pieces; ++r) {
            const T* row = m.as<T>() + r * m.stride(0);
#pragma omp simd reduction(max : top)
            for (int64_t i = 0; i < width; ++i)
              top = std::max(top, std::bit_cast<uint32_t>(static_cast<float>(row[i])) & 0x7fffffff);
          }
          most[static_cast<size_t>(piece)] = top;
        }
      });
  return std::bit_cast<float>(*std::max_element(most.begin(), most.end()));
}

template <Fp8 kFormat, class T>
void round_rows(float* to, const Tensor& m, float amax) {
  const float scale = fp8_scale(kFormat, amax), inverse = 1 / scale;
  const int64_t width = m.dim(1);
  parallel_for(m.dim(0), grain_of(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = m.as<T>() + r * m.stride(0);
      float* row = to + r * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i)
        row[i] = round_to(kFormat, static_cast<float>(from[i]) * scale) * inverse;
    }
  });
}

float amax_of(const Tensor& m) {
  float amax = 0;
  with_type(m.dtype(), [&]<class T>() { amax = amax_of_rows<T>(m); });
  return amax;
}

// The rounded factor, stored at `room`.
template <Fp8 kFormat>
Tensor rounded(void* room, const Tensor& m, float amax) {
  const Tensor result(room, DType::f32, m.shape());
  with_type(m.dtype(), [&]<class T>() { round_rows<kFormat, T>(result.as<float>(), m, amax); });
  return result;
}

}  // namespace

int64_t linear_fp8_scratch(const Tensor& y, const Tensor& x, const Tensor& w) {
  return (x.numel() + w.numel()) * kFloat + gemm_scratch(DType::f32, DType::f32, y.dtype());
}

int64_t linear_fp8_backward_scratch(const Tensor& dx, const Tensor& dw, const Tensor& dy) {
  const int64_t x = dy.dim(0) * dw.dim(1);
  const int64_t panels =
      std::max(gemm_scratch(DType::f32, DType::f32, dw.dtype()),
               gemm_scratch(DType::f32, DType::f32, dx ? dx.dtype() : DType::f32));
  return (dy.numel() + std::max(x, dx ? dw.numel() : 0)) * kFloat + panels;
}

void linear_fp8(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Tensor& amax, const Tensor& scratch) {
  auto* const room = static_cast<float*>(scratch.raw());
  float* const after_x = room + x.numel();
  float* const panels = after_x + w.numel();
  auto* const most = amax.as<float>();
  most[0] = amax_of(x);
  most[1] = amax_of(w);
  const Tensor x8 = rounded<Fp8::e4m3>(room, x, most[0]);
  const Tensor w8 = rounded<Fp8::e4m3>(after_x, w, most[1]);
  linear(y, x8, w8, b, Write::replace, 1, Tensor(panels, DType::u8, {1}));
}

void linear_fp8_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                         const Tensor& x, const Tensor& w, const Tensor& amax, Write mode,
                         const Tensor& scratch) {
  auto* const room = static_cast<float*>(scratch.raw());
  float* const other = room + dy.numel();
  const Tensor panels(other + std::max(x.numel(), dx ? w.numel() : 0), DType::u8, {1});
  const auto* const most = amax.as<float>();
  const Tensor dy8 = rounded<Fp8::e5m2>(room, dy, amax_of(dy));
  linear_backward_weight(dw, {}, dy8, rounded<Fp8::e4m3>(other, x, most[0]), mode, panels);
  if (db) add_column_sums(db, dy);
  if (dx)
    linear_backward_data(dx, dy8, rounded<Fp8::e4m3>(other, w, most[1]), Write::replace, 1, panels);
}

}  // namespace capstan::cpu
