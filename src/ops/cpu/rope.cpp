#include "ops/cpu/rope.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

template <class T>
void rotate_head(T* x, const float* cos, const float* sin, float direction, int64_t half) {
  T* const low = x;
  T* const high = x + half;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = float(low[i]), b = float(high[i]);
    const float s = direction * sin[i];
    store(low[i], a * cos[i] - b * s);
    store(high[i], b * cos[i] + a * s);
  }
}

}  // namespace

void rope(const Tensor& x_THD, const Tensor& cos_PD, const Tensor& sin_PD,
          const Tensor& positions_T, Rotation rotation) {
  const int64_t T = x_THD.dim(0), H = x_THD.dim(1), half = x_THD.dim(2) / 2;
  const int32_t* const positions = positions_T.as<int32_t>();
  const float* const cos = cos_PD.as<float>();
  const float* const sin = sin_PD.as<float>();
  const float direction = rotation == Rotation::forward ? 1.0f : -1.0f;
  with_type(x_THD.dtype(), [&]<class X>() {
    X* const x = x_THD.as<X>();
    parallel_for(T, grain_of(2 * H * half), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t angles = positions[t] * half;
        for (int64_t h = 0; h < H; ++h)
          rotate_head(x + t * x_THD.stride(0) + h * x_THD.stride(1), cos + angles, sin + angles,
                      direction, half);
      }
    });
  });
}

}  // namespace capstan::cpu
