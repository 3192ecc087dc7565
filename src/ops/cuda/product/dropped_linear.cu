// y = factor · drop(x) wᵀ. Sums over many inputs are computed in parts (split-K), which are then
// added in order.
#include "ops/cuda/product/dropped_linear.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = kDroppedThreads;
constexpr int kTokens = static_cast<int>(kDroppedTokens),
              kInputs = static_cast<int>(kDroppedInputs);
constexpr int kStages = 2;
// Rows in shared memory are padded by 64 bytes: four packs of two rows each cover all banks.
constexpr int kStride = kInputs + 32;

// A warp has 32 of a block's 64 tokens, and 32 of each 128 inputs.
//
// The order of the terms of a sum does not matter: in both factors, a lane uses eight contiguous
// inputs for the four pairs that the tensor cores expect from it.
template <int kOutputs>
__global__ void __launch_bounds__(kThreads, kOutputs > 32 ? 1 : 2)
    linear_kernel(float* partial, const bf16_t* x, const bf16_t* w, MaskArgument mask, int64_t T,
                  int64_t I, int64_t length) {
  constexpr int kFragments = kOutputs / 8, kPacks = kInputs / 8;
  extern __shared__ uint4 memory[];
  auto* const stages = reinterpret_cast<bf16_t*>(memory);  // of weights
  const int index = static_cast<int>(threadIdx.x), warp = index / 32;
  const int half = warp % 2, quarter = warp / 2, column = 32 * quarter + 8 * (lane() % 4);
  const int64_t first_row = int64_t{blockIdx.x} * kTokens + 32 * half + lane() / 4;
  const int64_t begin = int64_t{blockIdx.y} * length, end = min(begin + length, I);

  const auto fill = [&](int64_t input, int stage) {
    if (input < end)
      for (int i = index; i < kOutputs * kPacks; i += kThreads)
        copy_pack(stages + (stage * kOutputs + i / kPacks) * kStride + i % kPacks * 8,
                  w + i / kPacks * I + input + i % kPacks * 8, true);
    end_group();
  };
  uint4 next[4];
  const auto fetch = [&](int64_t input) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + 8 * i;
      next[i] = pack_at(x + row * I + input + column, row < T);
    }
  };
  fetch(begin);
  fill(begin, 0);
  uint32_t ordinals[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) ordinals[i] = mask.ordinal_of(min(first_row + 8 * i, T - 1));
  const Rng rng = mask.key.read();

  float sums[2][kFragments][4] = {};
  int stage = 0;
  for (int64_t input = begin; input < end; input += kInputs, stage ^= 1) {
    finish_copies<0>();
    __syncthreads();
    fill(input + kInputs, stage ^ 1);
    uint4 rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = next[i];
    if (input + kInputs < end) fetch(input + kInputs);
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = drop(rows[i], rng, mask, ordinals[i], input + column);
    const bf16_t* const weights = stages + (stage * kOutputs + lane() / 4) * kStride + column;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const uint4 b = *reinterpret_cast<const uint4*>(weights + 8 * n * kStride);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint4 &low = rows[2 * m], &high = rows[2 * m + 1];
        multiply<bf16_t>(sums[m][n], {low.x, high.x, low.y, high.y}, b.x, b.y);
        multiply<bf16_t>(sums[m][n], {low.z, high.z, low.w, high.w}, b.z, b.w);
      }
    }
  }

  // The upper quarters pass their sums to the lower ones.
  auto* const room = reinterpret_cast<float*>(memory);
  __syncthreads();
#pragma unroll
  for (int from = 2; from > 0; from /= 2) {
    float* const mine = room + (quarter % from * 2 + half) * kOutputs * 32 + lane();
    const auto each = [&](const auto& body) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i)
        body(sums[i / 4 / kFragments][i / 4 % kFragments][i % 4], mine[i * 32]);
    };
    if (quarter >= from && quarter < 2 * from) each([](float& sum, float& at) { at = sum; });
    __syncthreads();
    if (quarter < from) each([](float& sum, float& at) { sum += at; });
    __syncthreads();
  }
  if (quarter > 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = first_row + 8 * i;
    if (row >= T) continue;
    float* const to = partial + (blockIdx.y * T + row) * kOutputs + 2 * (lane() % 4);
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const float* const pair = sums[i / 2][n] + i % 2 * 2;
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(pair[0], pair[1]);
    }
  }
}

template <bool kAdd, class Y>
__global__ void add_parts_kernel(Y* to, const float* partial, int64_t parts, int64_t n,
                                 float factor) {
  const int64_t i = 4 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (i >= n) return;
  float sum[4] = {}, v[4] = {};
  for (int64_t part = 0; part < parts; ++part) {
    load(v, partial + part * n + i);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] += v[e];
  }
  float old[4] = {};
  if (kAdd) load(old, to + i);
#pragma unroll
  for (int e = 0; e < 4; ++e) v[e] = fmaf(sum[e], factor, old[e]);
  store(to + i, v);
}

}  // namespace

void add_parts(Queue& q, const Tensor& to, const Tensor& partial, int64_t parts, float factor,
               Write mode) {
  const int64_t n = to.numel();
  with_type(to.dtype(), [&]<class Y>() {
    const auto kernel = mode == Write::add ? add_parts_kernel<true, Y> : add_parts_kernel<false, Y>;
    kernel<<<static_cast<unsigned>(blocks_for(n, 4 * kThreads)), kThreads, 0, stream_of(q)>>>(
        data<Y>(to), data<float>(partial), parts, n, factor);
  });
  launched("add parts of sums");
}

void dropped_linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, float factor,
                    const DropoutMask& dropout, const Tensor& scratch) {
  const int64_t T = x.dim(0), I = x.dim(1);
  if (T == 0) return;
  const Parts parts = dropped_linear_parts(T, w.dim(0), I);
  const MaskArgument mask(dropout, x);
  with_outputs(w.dim(0), [&]<int kOutputs>() {
    constexpr int kWeights = kStages * kOutputs * kStride * static_cast<int>(sizeof(bf16_t)),
                  kSums = 4 * kOutputs * 32 * static_cast<int>(sizeof(float));
    constexpr int kBytes = std::max(kWeights, kSums);
    allow(linear_kernel<kOutputs>, kBytes);
    const dim3 grid(static_cast<unsigned>(blocks_for(T, kTokens)),
                    static_cast<unsigned>(parts.count));
    linear_kernel<kOutputs><<<grid, kThreads, kBytes, stream_of(q)>>>(
        data<float>(scratch), data<bf16_t>(x), data<bf16_t>(w), mask, T, I, parts.length);
  });
  launched("dropped_linear");
  add_parts(q, y, scratch, parts.count, factor * mask.keep.factor, Write::replace);
}

}  // namespace capstan::cuda
