#include "ops/adamw_factors.h"
#include "ops/cpu/dynamic_map.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/optimizer.h"
#include "ops/cuda/stochastic.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kEach = static_cast<int>(kAdamW8bitBlock) / 32;  // values of a lane

struct Maps {
  float m[256], v[256];
};

// The nearest of 256 ascending values; halfway goes to the lower.
__device__ uint8_t nearest(const float* map, float x) {
  int code = 0;
#pragma unroll
  for (int step = 128; step > 0; step /= 2)
    if (map[code + step] <= x) code += step;
  if (code < 255 && x > (map[code] + map[code + 1]) / 2) ++code;
  return static_cast<uint8_t>(code);
}

// A warp has a block of 256 values at a time; lane l its values l, l + 32, …
template <class P>
__global__ void adamw8bit_kernel(P weight, P master, bool has_master, P grad, uint8_t* m_codes,
                                 uint8_t* v_codes, float* m_absmax, float* v_absmax,
                                 const float* grad_scale, AdamWFactors f,
                                 std::optional<Rng> rounding, int64_t n, Maps maps) {
  __shared__ Maps shared;
  shared.m[threadIdx.x] = maps.m[threadIdx.x];
  shared.v[threadIdx.x] = maps.v[threadIdx.x];
  __syncthreads();
  const float scale = grad_scale == nullptr ? 1.0f : *grad_scale;
  if (isnan(scale)) return;
  const P full = has_master ? master : weight;
  const int64_t blocks = adamw8bit_blocks(n);
  for (int64_t b = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32; b < blocks;
       b += gridDim.x * int64_t{kWarps}) {
    const int64_t first = b * kAdamW8bitBlock + threadIdx.x % 32;
    float m[kEach], v[kEach], m_most = 0, v_most = 0;
    const float m_scale = m_absmax[b], v_scale = v_absmax[b];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = first + 32 * k;
      m[k] = v[k] = 0;
      if (i >= n) continue;
      float w[1], g[1];
      load(w, full + i);
      load(g, grad + i);
      const float d = g[0] * scale;
      m[k] = f.beta1 * (shared.m[m_codes[i]] * m_scale) + f.rest1 * d;
      v[k] = f.beta2 * (shared.v[v_codes[i]] * v_scale) + f.rest2 * (d * d);
      w[0] = w[0] * f.decay - f.rate * m[k] / (sqrtf(v[k]) * f.root + f.eps);
      round_by(rounding, i, w);
      store(weight + i, w);
      if (has_master) store(master + i, w);
      m_most = fmaxf(m_most, fabsf(m[k]));
      v_most = fmaxf(v_most, v[k]);
    }
    m_most = warp_max(m_most);
    v_most = warp_max(v_most);
    const float m_divisor = m_most > 0 ? m_most : 1.0f, v_divisor = v_most > 0 ? v_most : 1.0f;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = first + 32 * k;
      if (i >= n) continue;
      m_codes[i] = nearest(shared.m, m[k] / m_divisor);
      v_codes[i] = nearest(shared.v, v[k] / v_divisor);
    }
    if (threadIdx.x % 32 == 0) {
      m_absmax[b] = m_most;
      v_absmax[b] = v_most;
    }
  }
}

Maps maps() {
  Maps result;
  std::copy_n(cpu::DynamicMap::with_sign().values().begin(), 256, result.m);
  std::copy_n(cpu::DynamicMap::without_sign().values().begin(), 256, result.v);
  return result;
}

}  // namespace

void adamw8bit(Queue& q, const OptimizerOperands& p, const MomentScales& absmax,
               const AdamWStep& s) {
  const int64_t n = p.weight.numel();
  if (n == 0) return;
  with_pointers(
      [&]<class P>(P weight, P master, P grad) {
        adamw8bit_kernel<<<grid_for(n / kEach, kThreads), kThreads, 0, stream_of(q)>>>(
            weight, master, bool{p.master}, grad, data<uint8_t>(p.m), data<uint8_t>(p.v),
            data<float>(absmax.m), data<float>(absmax.v),
            p.grad_scale ? data<float>(p.grad_scale) : nullptr, AdamWFactors(s), p.rounding, n,
            maps());
      },
      p.weight, p.master, p.grad);
  launched("adamw8bit");
}

}  // namespace capstan::cuda
