#include <tuple>

#include "ops/cuda/adamw.cuh"
#include "ops/cuda/optimizer.h"
#include "ops/cuda/stochastic.cuh"
#include "ops/cuda/tensor_table.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kTile = 8192;  // values of one tensor per block

template <class P>
struct AdamWEntry {
  P weight, master, grad, m, v;
  const float* grad_scale;
  int64_t n;
  AdamWFactors factors;
  std::optional<Rng> rounding;
  RoundingPlace place;
  unsigned first_block;
  bool has_master, wide;
};

template <int N, class P>
__device__ void adamw_tile(const AdamWEntry<P>& e, int64_t begin, int64_t end, double* not_finite) {
  const float scale = value_or_one(e.grad_scale);
  if (isnan(scale)) return;
  constexpr bool kExact = !std::is_same_v<P, bf16_t*>;  // if more digits are stored
  const P full = e.has_master ? e.master : e.weight;
  for (int64_t i = begin + int64_t{threadIdx.x} * N; i < end; i += kThreads * N) {
    float w[N], g[N], first[N], second[N];
    load(w, full + i);
    load(g, e.grad + i);
    load(first, e.m + i);
    load(second, e.v + i);
#pragma unroll
    for (int k = 0; k < N; ++k)
      adamw_value<kExact>(w[k], g[k] * scale, first[k], second[k], e.factors);
    round_by(e.rounding, e.place, i, w);
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < N; ++k)
      most = larger_bits(
          larger_bits(larger_bits(most, as_stored(e.weight, w[k])), as_stored(e.m, first[k])),
          as_stored(e.v, second[k]));
    tell_not_finite(not_finite, most);
    store(e.weight + i, w);
    if (e.has_master) store(e.master + i, w);
    store(e.m + i, first);
    store(e.v + i, second);
  }
}

template <class P>
__global__ void adamw_kernel(const __grid_constant__ TensorTable<AdamWEntry<P>> table,
                             double* not_finite) {
  const AdamWEntry<P>& e = entry_of_block(table);
  const int64_t begin = tile_of_block(e) * kTile, end = min(begin + kTile, e.n);
  if (e.wide)
    adamw_tile<kOptimizerPack<P>>(e, begin, end, not_finite);
  else
    adamw_tile<1>(e, begin, end, not_finite);
}

template <class P>
__global__ void sgd_kernel(P weight, P master, bool has_master, P grad, P m, bool has_momentum,
                           const float* grad_scale, SgdStep s, std::optional<Rng> rounding,
                           RoundingPlace place, int64_t n, double* not_finite) {
  const float scale = value_or_one(grad_scale);
  if (isnan(scale)) return;
  const P full = has_master ? master : weight;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < n;
       i += gridDim.x * int64_t{kThreads}) {
    float w[1], g[1], momentum[1] = {};
    load(w, full + i);
    load(g, grad + i);
    const float d = g[0] * scale + s.weight_decay * w[0];
    float move = d;
    if (has_momentum) {
      // The first step ignores the old m, even if it is NaN.
      load(momentum, m + i);
      momentum[0] = s.step == 1 ? d : s.momentum * momentum[0] + (1.0f - s.dampening) * d;
      store(m + i, momentum);
      move = s.nesterov ? d + s.momentum * momentum[0] : momentum[0];
    }
    w[0] -= s.lr * move;
    round_by(rounding, place, i, w);
    tell_not_finite(not_finite, larger_bits(larger_bits(0, as_stored(weight, w[0])),
                                            has_momentum ? as_stored(m, momentum[0]) : 0.0f));
    store(weight + i, w);
    if (has_master) store(master + i, w);
  }
}

}  // namespace

void adamw(Queue& q, std::span<const AdamWParameter> all, const Tensor& not_finite) {
  const auto launch = [&]<class P>(const TensorTable<AdamWEntry<P>>& table, unsigned blocks) {
    adamw_kernel<P><<<blocks, kThreads, 0, stream_of(q)>>>(table, data<double>(not_finite));
  };
  using Launch = decltype(launch);
  // The tensors of a launch have one mix of types.
  TensorBatch<AdamWEntry<bf16_t*>, Launch> narrow(launch);
  TensorBatch<AdamWEntry<f16_t*>, Launch> half(launch);
  TensorBatch<AdamWEntry<float*>, Launch> full(launch);
  TensorBatch<AdamWEntry<AnyPointer>, Launch> mixed(launch);
  const auto batches = std::tie(narrow, half, full, mixed);
  for (const auto& [p, s] : all) {
    const int64_t n = p.weight.numel();
    if (n == 0) continue;
    with_pointers(
        [&]<class P>(P weight, P master, P grad, P m, P v) {
          const AdamWEntry<P> entry{
              .weight = weight,
              .master = master,
              .grad = grad,
              .m = m,
              .v = v,
              .grad_scale = scalar(p.grad_scale),
              .n = n,
              .factors = AdamWFactors(s),
              .rounding = p.rounding,
              .place = p.place,
              .first_block = 0,
              .has_master = bool{p.master},
              .wide = walks_in_packs(kOptimizerPack<P>, p.weight, p.master, p.grad, p.m, p.v)};
          std::get<TensorBatch<AdamWEntry<P>, Launch>&>(batches).add(entry, blocks_for(n, kTile));
        },
        p.weight, p.master, p.grad, p.m, p.v);
  }
  narrow.flush();
  half.flush();
  full.flush();
  mixed.flush();
  launched("adamw");
}

void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s, const Tensor& not_finite) {
  const int64_t n = p.weight.numel();
  if (n == 0) return;
  with_pointers(
      [&]<class P>(P weight, P master, P grad, P m) {
        sgd_kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(q)>>>(
            weight, master, bool{p.master}, grad, m, bool{p.m}, scalar(p.grad_scale), s, p.rounding,
            p.place, n, data<double>(not_finite));
      },
      p.weight, p.master, p.grad, p.m);
  launched("sgd");
}

}  // namespace capstan::cuda
