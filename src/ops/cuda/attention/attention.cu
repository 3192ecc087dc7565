// The entry points, and attention by a warp per query: any type, heads of up to 256 channels.
#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/rope.h"

namespace capstan::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kMostEach = 8;  // channels per lane: heads of up to 256

__device__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ int warp() {
  return static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
}

// A lane has channels lane, lane + 32, …; those past D are zeros.
template <class T>
__device__ void load_row(float (&to)[kMostEach], const T* row, int D) {
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int d = lane() + 32 * i;
    to[i] = d < D ? to_float(row[d]) : 0.0f;
  }
}
template <class T>
__device__ void store_row(T* row, const float (&from)[kMostEach], int D) {
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int d = lane() + 32 * i;
    if (d < D) row[d] = from_float<T>(from[i]);
  }
}
template <class T>
__device__ float dot(const float (&a)[kMostEach], const T* row, int D) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int d = lane() + 32 * i;
    if (d < D) sum += a[i] * to_float(row[d]);
  }
  return warp_sum(sum);
}
template <class T>
__device__ void add(float (&to)[kMostEach], float factor, const T* row, int D) {
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int d = lane() + 32 * i;
    if (d < D) to[i] += factor * to_float(row[d]);
  }
}

// One query over the keys [begin, end), with an online softmax (running maximum and sum).
template <class T>
__device__ void attend(T* o, float* lse, const T* query, Heads<T> k, Heads<T> v, int key_head,
                       int begin, int end, const AttentionShape& s) {
  float q[kMostEach], out[kMostEach] = {}, most = -INFINITY, sum = 0;
  load_row(q, query, s.D);
  for (int key = begin; key < end; ++key) {
    const float score = s.scale * dot(q, k.at(key, key_head), s.D);
    if (score > most) {
      const float shrink = __expf(most - score);
      sum *= shrink;
#pragma unroll
      for (float& x : out) x *= shrink;
      most = score;
    }
    const float p = __expf(score - most);
    sum += p;
    add(out, p, v.at(key, key_head), s.D);
  }
#pragma unroll
  for (float& x : out) x /= sum;
  store_row(o, out, s.D);
  if (lane() == 0) *lse = most + logf(sum);
}

template <class T>
__global__ void attention_kernel(Heads<T> o, float* lse, Heads<T> q, Heads<T> k, Heads<T> v,
                                 Visible visible, AttentionShape s) {
  const int t = warp() / s.H, h = warp() % s.H;
  if (t >= s.T) return;
  attend(o.at(t, h), lse + int64_t{h} * s.T + t, q.at(t, h), k, v, h / s.group, visible.first(t),
         t + 1, s);
}

// delta[h, t] = Σ_d do[t, h, d] o[t, h, d], by a warp, or by kLanes lanes of 8 channels each.
template <class T>
__global__ void delta_kernel(float* delta, Heads<T> d_o, Heads<T> o, AttentionShape s) {
  const int t = warp() / s.H, h = warp() % s.H;
  if (t >= s.T) return;
  float row[kMostEach];
  load_row(row, d_o.at(t, h), s.D);
  const float sum = dot(row, o.at(t, h), s.D);
  if (lane() == 0) delta[int64_t{h} * s.T + t] = sum;
}

template <int kLanes, class T>
__global__ void wide_delta_kernel(float* delta, Heads<T> d_o, Heads<T> o, AttentionShape s) {
  const int64_t item = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const int t = static_cast<int>(item / s.H), h = static_cast<int>(item % s.H);
  const int channel = static_cast<int>(threadIdx.x) % kLanes * 8;
  float sum = 0;
  if (t < s.T) {
    float a[8], b[8];
    load(a, d_o.at(t, h) + channel);
    load(b, o.at(t, h) + channel);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += a[k] * b[k];
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (t < s.T && channel == 0) delta[int64_t{h} * s.T + t] = sum;
}

template <class T>
__global__ void query_gradient_kernel(Heads<T> dq, Heads<T> d_o, const float* lse,
                                      const float* delta, Heads<T> q, Heads<T> k, Heads<T> v,
                                      Visible visible, AttentionShape s) {
  const int t = warp() / s.H, h = warp() % s.H;
  if (t >= s.T) return;
  float query[kMostEach], d[kMostEach], sum[kMostEach] = {};
  load_row(query, q.at(t, h), s.D);
  load_row(d, d_o.at(t, h), s.D);
  const float log_sum = lse[int64_t{h} * s.T + t], shift = delta[int64_t{h} * s.T + t];
  for (int key = visible.first(t); key <= t; ++key) {
    const float p = __expf(s.scale * dot(query, k.at(key, h / s.group), s.D) - log_sum);
    const float dp = dot(d, v.at(key, h / s.group), s.D);
    add(sum, s.scale * p * (dp - shift), k.at(key, h / s.group), s.D);
  }
  store_row(dq.at(t, h), sum, s.D);
}

template <class T>
__global__ void key_gradient_kernel(Heads<T> dk, Heads<T> dv, Heads<T> d_o, const float* lse,
                                    const float* delta, Heads<T> q, Heads<T> k, Heads<T> v,
                                    Visible visible, AttentionShape s) {
  const int key_heads = s.H / s.group;
  const int key = warp() / key_heads, head = warp() % key_heads;
  if (key >= s.T) return;
  float key_row[kMostEach], value_row[kMostEach], key_sum[kMostEach] = {},
                                                  value_sum[kMostEach] = {};
  load_row(key_row, k.at(key, head), s.D);
  load_row(value_row, v.at(key, head), s.D);
  const int last = visible.last(key);
  for (int h = head * s.group; h < (head + 1) * s.group; ++h)
    for (int t = key; t < last; ++t) {
      const float p = __expf(s.scale * dot(key_row, q.at(t, h), s.D) - lse[int64_t{h} * s.T + t]);
      const float dp = dot(value_row, d_o.at(t, h), s.D);
      add(value_sum, p, d_o.at(t, h), s.D);
      add(key_sum, s.scale * p * (dp - delta[int64_t{h} * s.T + t]), q.at(t, h), s.D);
    }
  store_row(dk.at(key, head), key_sum, s.D);
  store_row(dv.at(key, head), value_sum, s.D);
}

unsigned warps(int64_t count) {
  return static_cast<unsigned>(blocks_for(count, kWarps));
}

void forward(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  with_type(in.q.dtype(), [&]<class T>() {
    attention_kernel<T><<<warps(in.q.dim(0) * in.q.dim(1)), kThreads, 0, stream_of(q)>>>(
        heads<T>(o), data<float>(lse), heads<T>(in.q), heads<T>(in.k), heads<T>(in.v),
        Visible(in.mask), in.shape());
  });
  launched("attention");
}

void query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                    const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  dot_rows(q, delta, d_o, o, in.shape());
  with_type(in.q.dtype(), [&]<class T>() {
    query_gradient_kernel<T><<<warps(in.q.dim(0) * in.q.dim(1)), kThreads, 0, stream_of(q)>>>(
        heads<T>(dq), heads<T>(d_o), data<float>(lse), data<float>(delta), heads<T>(in.q),
        heads<T>(in.k), heads<T>(in.v), Visible(in.mask), in.shape());
  });
  launched("attention's gradient of queries");
}

void key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                  const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  with_type(in.q.dtype(), [&]<class T>() {
    key_gradient_kernel<T><<<warps(in.k.dim(0) * in.k.dim(1)), kThreads, 0, stream_of(q)>>>(
        heads<T>(dk), heads<T>(dv), heads<T>(d_o), data<float>(lse), data<float>(delta),
        heads<T>(in.q), heads<T>(in.k), heads<T>(in.v), Visible(in.mask), in.shape());
  });
  launched("attention's gradient of keys");
}

enum class Pass : uint8_t { forward, backward };

// The fastest that fits in the GPU's shared memory.
const AttentionKernels& kernels_for(const Queue& q, const Tensor& query, Pass pass) {
  require_channels(query.dim(2), 32 * kMostEach);
  if (query.dim(2) > 128) return kWarpAttention;
  if (query.dtype() == DType::bf16 && q.cuda().wgmma()) return kWgmmaAttention;
  const auto fits = [&](const AttentionKernels& kernels) {
    const SharedBytes bytes = kernels.shared(query.dim(2));
    return (pass == Pass::forward ? bytes.forward : bytes.backward) <= shared_room(q);
  };
  if (query.dtype() == DType::f32) return fits(kF32Attention) ? kF32Attention : kWarpAttention;
  if (!q.cuda().has_mma(query.dtype())) return kWarpAttention;
  if (fits(kMmaAttention)) return kMmaAttention;
  return fits(kSmallMmaAttention) ? kSmallMmaAttention : kWarpAttention;
}

}  // namespace

void dot_rows(Queue& q, const Tensor& delta, const Tensor& d_o, const Tensor& o,
              const AttentionShape& s) {
  with_type(o.dtype(), [&]<class T>() {
    const int64_t items = int64_t{s.T} * s.H;
    const bool wide = packs(8, d_o, o) && (s.D == 64 || s.D == 128);
    const auto kernel = !wide       ? delta_kernel<T>
                        : s.D == 64 ? wide_delta_kernel<8, T>
                                    : wide_delta_kernel<16, T>;
    const unsigned grid =
        wide ? static_cast<unsigned>(blocks_for(items * s.D / 8, kThreads)) : warps(items);
    kernel<<<grid, kThreads, 0, stream_of(q)>>>(data<float>(delta), heads<T>(d_o), heads<T>(o), s);
  });
  launched("attention's shift");
}

const AttentionKernels kWarpAttention = {forward, query_gradient, key_gradient,
                                         [](int64_t) { return SharedBytes{}; }};

void attention(Queue& q, const Tensor& o, const Tensor& lse, const Tensor& query, const Tensor& k,
               const Tensor& v, const AttentionMask& mask, float scale) {
  if (query.numel() > 0)
    kernels_for(q, query, Pass::forward).forward(q, o, lse, {query, k, v, mask, scale});
}

void rotate_back(Queue& q, const Tensor& dx, const RopeAngles& rotated) {
  cuda::rope(q, dx, rotated.cos_PD, rotated.sin_PD, rotated.positions_T, Rotation::back);
}

void attention_backward(Queue& q, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const Tensor& d_o, const Tensor& o, const Tensor& lse, const Tensor& query,
                        const Tensor& k, const Tensor& v, const AttentionMask& mask, float scale,
                        const RopeAngles& rotated, const Tensor& scratch) {
  if (query.numel() == 0) return;
  const AttentionKernels& kernels = kernels_for(q, query, Pass::backward);
  const AttentionInputs in{query, k, v, mask, scale, rotated};
  const Tensor delta(scratch.raw(), DType::f32, lse.shape());
  kernels.query_gradient(q, dq, delta, d_o, o, lse, in);
  kernels.key_gradient(q, dk, dv, d_o, lse, delta, in);
  if (!rotated || kernels.rotates_back) return;
  rotate_back(q, dq, rotated);
  rotate_back(q, dk, rotated);
}

}  // namespace capstan::cuda
