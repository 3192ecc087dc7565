// dw += dyᵀ drop(x), and dx += drop(dy w).
#include "ops/cuda/product/dropped_linear.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = kDroppedThreads;
constexpr int kTokens = static_cast<int>(kDroppedTokens),
              kInputs = static_cast<int>(kDroppedInputs);
constexpr int kInputPacks = kInputs / 8;
// Rows in shared memory are padded by 16 bytes: eight of them cover all banks.
constexpr int kInputStride = kInputs + 8;

// A tile of dy, [64, kOutputs].
template <int kOutputs>
struct alignas(16) Gradients {
  static constexpr int kStride = kOutputs + 8, kPacks = kOutputs / 8;
  bf16_t values[kTokens * kStride];

  __device__ void fill(const bf16_t* dy, int64_t first, int64_t end) {
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kPacks; i += kThreads) {
      const int64_t row = first + i / kPacks;
      copy_pack(values + i / kPacks * kStride + i % kPacks * 8,
                dy + (row < end ? row * kOutputs + i % kPacks * 8 : 0), row < end);
    }
  }
};

// A warp has 16 of a block's 128 inputs, and all outputs.
template <int kOutputs>
__global__ void __launch_bounds__(kThreads, 2)
    weight_kernel(float* partial, const bf16_t* dy, const bf16_t* x, MaskArgument mask, int64_t T,
                  int64_t I, int64_t length) {
  constexpr int kEach = kTokens * kInputPacks / kThreads, kStride = Gradients<kOutputs>::kStride;
  __shared__ alignas(16) bf16_t inputs[kTokens * kInputStride];
  __shared__ Gradients<kOutputs> gradients;
  const int index = static_cast<int>(threadIdx.x), warp = index / 32;
  const int column = index % kInputPacks * 8, first_row = index / kInputPacks;
  const int64_t first_input = int64_t{blockIdx.x} * kInputs;
  const int64_t begin = int64_t{blockIdx.y} * length, end = min(begin + length, T);

  uint4 next[kEach];
  uint32_t ordinals[kEach];
  const auto fetch = [&](int64_t token) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t row = token + first_row + i * (kThreads / kInputPacks);
      next[i] = pack_at(x + row * I + first_input + column, row < end);
      ordinals[i] = mask.ordinal_of(min(row, end - 1));
    }
  };
  fetch(begin);
  const Rng rng = mask.key.read();
  float sums[kOutputs / 16][2][4] = {};
  for (int64_t token = begin; token < end; token += kTokens) {
    gradients.fill(dy, token, end);
    end_group();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = first_row + i * (kThreads / kInputPacks);
      *reinterpret_cast<uint4*>(inputs + row * kInputStride + column) =
          drop(next[i], rng, mask, ordinals[i], first_input + column);
    }
    finish_copies<0>();
    __syncthreads();
    if (token + kTokens < end) fetch(token + kTokens);
#pragma unroll
    for (int k = 0; k < kTokens; k += 16) {
      uint32_t b[4];
      load_matrices_flipped(
          b, inputs + (k + lane() % 16) * kInputStride + 16 * warp + lane() / 16 * 8);
#pragma unroll
      for (int m = 0; m < kOutputs / 16; ++m) {
        uint32_t a[4];
        load_matrices_flipped(a, gradients.values + (k + lane() / 16 * 8 + lane() % 8) * kStride +
                                     16 * m + lane() / 8 % 2 * 8);
        multiply<bf16_t>(sums[m][0], a, b[0], b[1]);
        multiply<bf16_t>(sums[m][1], a, b[2], b[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < kOutputs / 16; ++m)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * m + lane() / 4 + 8 * i;
      float* const to = partial + (int64_t{blockIdx.y} * kOutputs + row) * I + first_input +
                        16 * warp + 2 * (lane() % 4);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(sums[m][j][2 * i], sums[m][j][2 * i + 1]);
    }
}

// A block has 128 inputs and loops over `tiles` tiles of tokens; a warp has 32 by 32 of a tile.
// Columns of the weights are permuted, so that a lane's sums are for eight contiguous inputs.
template <int kOutputs>
__global__ void __launch_bounds__(kThreads, 2)
    data_kernel(bf16_t* dx, const bf16_t* dy, const bf16_t* w, MaskArgument mask, int64_t T,
                int64_t I, int tiles) {
  constexpr int kStride = Gradients<kOutputs>::kStride;
  extern __shared__ uint4 memory[];
  auto* const gradients = reinterpret_cast<Gradients<kOutputs>*>(memory);  // two
  auto* const weights = reinterpret_cast<bf16_t*>(gradients + 2);
  const int index = static_cast<int>(threadIdx.x), warp = index / 32;
  const int row0 = 32 * (warp % 2), column0 = 32 * (warp / 2);
  const int64_t begin = int64_t{blockIdx.y} * tiles * kTokens,
                end = min(begin + int64_t{tiles} * kTokens, T);
  const int64_t first_input = int64_t{blockIdx.x} * kInputs;
  const int64_t column = first_input + column0 + 8 * (lane() % 4);

  uint4 next[4];
  const auto fetch = [&](int64_t token) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = token + row0 + lane() / 4 + 8 * i;
      next[i] = pack_at(dx + row * I + column, row < end);
    }
  };
  gradients[0].fill(dy, begin, end);
  end_group();
  fetch(begin);
  for (int i = index; i < kOutputs * kInputPacks; i += kThreads) {
    const int pack = i % kInputPacks;
    const uint4 v = pack_at(w + i / kInputPacks * I + first_input + 8 * pack, true);
    auto* const to = reinterpret_cast<uint32_t*>(weights + i / kInputPacks * kInputStride +
                                                 pack / 4 * 32 + pack % 4 * 2);
    to[0] = v.x;
    to[4] = v.y;
    to[8] = v.z;
    to[12] = v.w;
  }
  const Rng rng = mask.key.read();

  int side = 0;
  for (int64_t token = begin; token < end; token += kTokens, side ^= 1) {
    finish_copies<0>();
    __syncthreads();
    if (token + kTokens < end) gradients[side ^ 1].fill(dy, token + kTokens, end);
    end_group();
    uint4 before[4];
    uint32_t ordinals[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      before[i] = next[i];
      ordinals[i] = mask.ordinal_of(min(token + row0 + lane() / 4 + 8 * i, end - 1));
    }
    if (token + kTokens < end) fetch(token + kTokens);

    float sums[2][4][4] = {};
#pragma unroll
    for (int k = 0; k < kOutputs; k += 16) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        load_matrices(a[m], gradients[side].values + (row0 + 16 * m + lane() % 16) * kStride + k +
                                lane() / 16 * 8);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        uint32_t b[4];
        load_matrices_flipped(
            b, weights + (k + lane() % 16) * kInputStride + column0 + 8 * j + lane() / 16 * 8);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply<bf16_t>(sums[m][j], a[m], b[0], b[1]);
          multiply<bf16_t>(sums[m][j + 1], a[m], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = token + row0 + lane() / 4 + 8 * i;
      if (row >= end) continue;
      const auto words = rng.draws(mask.half_of(ordinals[i], column) / 8);
      float v[8];
      unpack<bf16_t>(v, before[i]);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (keeps(mask.keep, words, e))
          v[e] = fmaf(sums[i / 2][e / 2][i % 2 * 2 + e % 2], mask.keep.factor, v[e]);
      *reinterpret_cast<uint4*>(dx + row * I + column) = packed<bf16_t>(v);
    }
  }
}

}  // namespace

void dropped_linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                    const DropoutMask& dropout, const Tensor& scratch) {
  const int64_t T = x.dim(0), I = x.dim(1);
  if (T == 0) return;
  const Parts parts = dropped_weight_parts(T, I);
  const MaskArgument mask(dropout, x);
  with_outputs(dw.dim(0), [&]<int kOutputs>() {
    const dim3 grid(static_cast<unsigned>(I / kInputs), static_cast<unsigned>(parts.count));
    weight_kernel<kOutputs><<<grid, kThreads, 0, stream_of(q)>>>(
        data<float>(scratch), data<bf16_t>(dy), data<bf16_t>(x), mask, T, I, parts.length);
  });
  launched("dropped_linear_backward_weight");
  add_parts(q, dw, scratch, parts.count, mask.keep.factor, Write::add);
}

void dropped_linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  const DropoutMask& mask) {
  const int64_t T = dx.dim(0), I = dx.dim(1);
  if (T == 0) return;
  // As many blocks as run at once, two per SM.
  const int64_t across = I / kInputs, down = blocks_for(T, kTokens);
  const int64_t tiles = blocks_for(across * down, 2 * q.cuda().multiprocessors());
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(blocks_for(down, tiles)));
  with_outputs(w.dim(0), [&]<int kOutputs>() {
    constexpr int kBytes = static_cast<int>(2 * sizeof(Gradients<kOutputs>) +
                                            kOutputs * kInputStride * sizeof(bf16_t));
    allow(data_kernel<kOutputs>, kBytes);
    data_kernel<kOutputs><<<grid, kThreads, kBytes, stream_of(q)>>>(
        data<bf16_t>(dx), data<bf16_t>(dy), data<bf16_t>(w), MaskArgument(mask, dx), T, I,
        static_cast<int>(tiles));
  });
  launched("dropped_linear_backward_data");
}

}  // namespace capstan::cuda
