#include <tuple>

#include "ops/cuda/adamw.cuh"
#include "ops/cuda/dynamic_cells.h"
#include "ops/cuda/optimizer.h"
#include "ops/cuda/stochastic.cuh"
#include "ops/cuda/tensor_table.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
// Blocks of 256 values per thread block: enough to amortize loading the maps.
constexpr int kTile = 256;
static_assert(kTile <= kThreads);                              // one thread for each block's scales
constexpr int kEach = static_cast<int>(kAdamW8bitBlock) / 32;  // values per lane

struct Maps {
  alignas(16) DynamicCells<true> m;
  alignas(16) DynamicCells<false> v;
};
__device__ constexpr Maps kMaps = {make_dynamic_cells<true>(), make_dynamic_cells<false>()};

// A tensor accessed in packs of N values.
template <class P, int N>
struct AdamW8bitEntry {
  P weight, master, grad;
  uint8_t *m, *v;
  float *m_absmax, *v_absmax;
  const float* grad_scale;
  int64_t n;
  AdamWFactors factors;
  std::optional<Rng> rounding;
  RoundingPlace place;
  unsigned first_block;
  bool has_master;
};

// A warp processes one block of 256 values, n of them valid. A lane has packs of N values; each is
// one access, adjacent to the next lane's. Packs are valid or invalid as a whole.
template <int N>
__device__ int place(int k) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return k / N * 32 * N + lane * N + k % N;
}

template <int N, class P>
__device__ void read(float (&to)[kEach], P from, int n) {
#pragma unroll
  for (int k = 0; k < kEach; k += N) {
    float pack[N] = {};
    if constexpr (N == 8) {  // whole packs of a narrow type
      unpack<std::remove_pointer_t<P>>(pack, pack_at(from + place<N>(k), place<N>(k) < n));
    } else {
      if (place<N>(k) < n) load(pack, from + place<N>(k));
    }
#pragma unroll
    for (int i = 0; i < N; ++i) to[k + i] = pack[i];
  }
}

template <int N, class P>
__device__ void write(P to, const float (&from)[kEach], int n) {
#pragma unroll
  for (int k = 0; k < kEach; k += N) {
    float pack[N];
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = from[k + i];
    if (place<N>(k) < n) store(to + place<N>(k), pack);
  }
}

template <int N>
__device__ void round(const std::optional<Rng>& rounding, const RoundingPlace& whole, int64_t begin,
                      float (&w)[kEach]) {
  if (!rounding) return;
#pragma unroll
  for (int k = 0; k < kEach; k += N) {
    float pack[N];
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = w[k + i];
    round_by(rounding, whole, begin + place<N>(k), pack);
#pragma unroll
    for (int i = 0; i < N; ++i) w[k + i] = pack[i];
  }
}

// A lane's codes: four per word, the first in the lowest byte.
struct Codes {
  uint32_t word[kEach / 4];

  __device__ uint8_t operator[](int k) const {
    return static_cast<uint8_t>(word[k / 4] >> 8 * (k % 4));
  }
};

// N codes in one access, in the lowest bytes.
template <int N>
using CodePack = std::conditional_t<N == 8, uint2, std::conditional_t<N == 4, uint32_t, uint8_t>>;

template <int N>
__device__ Codes read_codes(const uint8_t* from, int n, uint8_t code_of_zero) {
  Codes codes;
#pragma unroll
  for (int k = 0; k < kEach; k += 4) codes.word[k / 4] = code_of_zero * 0x01010101u;
#pragma unroll
  for (int k = 0; k < kEach; k += N) {
    if (place<N>(k) >= n) continue;
    const auto pack = *reinterpret_cast<const CodePack<N>*>(from + place<N>(k));
    if constexpr (N == 8)
      codes = {pack.x, pack.y};
    else if constexpr (N == 4)
      codes.word[k / 4] = pack;
    else
      codes.word[k / 4] =
          __byte_perm(codes.word[k / 4], pack, 0x3210 + ((4 - k % 4) << 4 * (k % 4)));
  }
  return codes;
}

template <int N>
__device__ void write_codes(uint8_t* to, const Codes& codes, int n) {
#pragma unroll
  for (int k = 0; k < kEach; k += N) {
    if (place<N>(k) >= n) continue;
    auto& pack = *reinterpret_cast<CodePack<N>*>(to + place<N>(k));
    if constexpr (N == 8)
      pack = {codes.word[0], codes.word[1]};
    else if constexpr (N == 4)
      pack = codes.word[k / 4];
    else
      pack = codes[k];
  }
}

template <bool kSign>
__device__ void widen(float (&x)[kEach], const DynamicCells<kSign>& map, const Codes& codes,
                      float absmax) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) x[k] = map.values[codes[k]] * absmax;
}

// The codes of a block's values, and their largest magnitude, which all lanes receive: as in
// cpu/adamw8bit.cpp, NaN counts as the largest. Overwrites the values.
template <bool kSign>
__device__ Codes narrow(float& most, const DynamicCells<kSign>& map, float (&x)[kEach]) {
  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) largest = max(largest, __float_as_uint(x[k]) & 0x7fffffffu);
  most = __uint_as_float(warp_max(largest));
  float lifted = most;
  if (most < 0x1p-100f) {
    lifted *= 0x1p100f;
#pragma unroll
    for (int k = 0; k < kEach; ++k) x[k] *= 0x1p100f;
  }
  const float inverse = most > 0 ? 1.0f / lifted : 0.0f;
  uint32_t found[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const float size = __saturatef(fabsf(x[k]) * inverse);  // NaN becomes 0
    found[k] = map.find(__float_as_int(size), kSign ? __float_as_int(x[k]) >> 31 : 0);
  }
  const auto codes_from = [&](int k) {
    return __byte_perm(__byte_perm(found[k], found[k + 1], 0x62),
                       __byte_perm(found[k + 2], found[k + 3], 0x62), 0x5410);
  };
  return {codes_from(0), codes_from(4)};
}

template <class P, int N>
__device__ void update_block(const AdamW8bitEntry<P, N>& e, int64_t begin, float scale,
                             const Maps& maps, float& m_absmax, float& v_absmax,
                             double* not_finite) {
  const int n = static_cast<int>(min(kAdamW8bitBlock, e.n - begin));
  float w[kEach], g[kEach], m[kEach], v[kEach];
  const Codes m_codes = read_codes<N>(e.m + begin, n, 127);
  const Codes v_codes = read_codes<N>(e.v + begin, n, 0);
  read<N>(w, (e.has_master ? e.master : e.weight) + begin, n);
  read<N>(g, e.grad + begin, n);
  widen(m, maps.m, m_codes, m_absmax);
  widen(v, maps.v, v_codes, v_absmax);
#pragma unroll
  for (int k = 0; k < kEach; ++k) adamw_value<true>(w[k], g[k] * scale, m[k], v[k], e.factors);
  round<N>(e.rounding, e.place, begin, w);
  uint32_t most = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (place<N>(k) < n) most = larger_bits(most, as_stored(e.weight, w[k]));
  tell_not_finite(not_finite, most);
  write<N>(e.weight + begin, w, n);
  if (e.has_master) write<N>(e.master + begin, w, n);
  float m_most, v_most;
  write_codes<N>(e.m + begin, narrow(m_most, maps.m, m), n);
  write_codes<N>(e.v + begin, narrow(v_most, maps.v, v), n);
  __syncwarp();  // all lanes have read the old ones
  if (threadIdx.x % 32 == 0) {
    tell_not_finite(not_finite, larger_bits(larger_bits(0, m_most), v_most));
    m_absmax = m_most;
    v_absmax = v_most;
  }
}

template <class P, int N>
__global__ void __launch_bounds__(kThreads, 2)
    adamw8bit_kernel(const __grid_constant__ TensorTable<AdamW8bitEntry<P, N>> table,
                     double* not_finite) {
  __shared__ Maps maps;
  // Scales are loaded and stored together: one by one, each would cross the host bus separately.
  __shared__ float m_absmax[kTile], v_absmax[kTile];
  const AdamW8bitEntry<P, N>& e = entry_of_block(table);
  const float scale = value_or_one(e.grad_scale);
  if (isnan(scale)) return;
  const int64_t first = tile_of_block(e) * kTile;
  const int count = static_cast<int>(min(int64_t{kTile}, adamw8bit_blocks(e.n) - first));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < count) {
    m_absmax[thread] = e.m_absmax[first + thread];
    v_absmax[thread] = e.v_absmax[first + thread];
  }
  constexpr int kWords = static_cast<int>(sizeof maps / sizeof(uint4));
#pragma unroll
  for (int k = 0; k < kWords; k += kThreads)
    if (k + thread < kWords)
      reinterpret_cast<uint4*>(&maps)[k + thread] =
          reinterpret_cast<const uint4*>(&kMaps)[k + thread];
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x / 32); b < count; b += kWarps)
    update_block(e, (first + b) * kAdamW8bitBlock, scale, maps, m_absmax[b], v_absmax[b],
                 not_finite);
  __syncthreads();
  if (thread < count) {
    e.m_absmax[first + thread] = m_absmax[thread];
    e.v_absmax[first + thread] = v_absmax[thread];
  }
}

}  // namespace

void adamw8bit(Queue& q, std::span<const AdamW8bitParameter> all, const Tensor& not_finite) {
  const auto launch = [&]<class P, int N>(const TensorTable<AdamW8bitEntry<P, N>>& table,
                                          unsigned blocks) {
    adamw8bit_kernel<P, N><<<blocks, kThreads, 0, stream_of(q)>>>(table, data<double>(not_finite));
  };
  using Launch = decltype(launch);
  // The tensors of a launch have one mix of types, or any types without alignment.
  TensorBatch<AdamW8bitEntry<bf16_t*, 8>, Launch> narrow(launch);
  TensorBatch<AdamW8bitEntry<f16_t*, 8>, Launch> half(launch);
  TensorBatch<AdamW8bitEntry<float*, 4>, Launch> full(launch);
  TensorBatch<AdamW8bitEntry<AnyPointer, 4>, Launch> mixed(launch);
  TensorBatch<AdamW8bitEntry<AnyPointer, 1>, Launch> loose(launch);
  const auto batches = std::tie(narrow, half, full, mixed, loose);
  for (const auto& [p, absmax, s] : all) {
    const int64_t n = p.weight.numel();
    if (n == 0) continue;
    const auto add = [&]<int N, class P>(P weight, P master, P grad) {
      const AdamW8bitEntry<P, N> entry{.weight = weight,
                                       .master = master,
                                       .grad = grad,
                                       .m = data<uint8_t>(p.m),
                                       .v = data<uint8_t>(p.v),
                                       .m_absmax = data<float>(absmax.m),
                                       .v_absmax = data<float>(absmax.v),
                                       .grad_scale = scalar(p.grad_scale),
                                       .n = n,
                                       .factors = AdamWFactors(s),
                                       .rounding = p.rounding,
                                       .place = p.place,
                                       .first_block = 0,
                                       .has_master = bool{p.master}};
      std::get<TensorBatch<AdamW8bitEntry<P, N>, Launch>&>(batches).add(
          entry, blocks_for(adamw8bit_blocks(n), kTile));
    };
    if (walks_in_packs(kEach, p.weight, p.master, p.grad, p.m, p.v))
      with_pointers(
          [&]<class P>(P weight, P master, P grad) {
            add.template operator()<kOptimizerPack<P>>(weight, master, grad);
          },
          p.weight, p.master, p.grad);
    else
      add.template operator()<1>(any(p.weight), any(p.master), any(p.grad));
  }
  narrow.flush();
  half.flush();
  full.flush();
  mixed.flush();
  loose.flush();
  launched("adamw8bit");
}

}  // namespace capstan::cuda
