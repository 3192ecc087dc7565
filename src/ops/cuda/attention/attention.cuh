#pragma once

#include "ops/cuda/attention/attention.h"
#include "ops/cuda/device.cuh"

// Shared by the kernels of attention.
namespace capstan::cuda {

// Heads of a [T, H, D] tensor whose last dimension is dense.
template <class T>
struct Heads {
  T* data;
  int64_t stride_t, stride_h;

  __device__ T* at(int64_t t, int64_t h) const { return data + t * stride_t + h * stride_h; }
};
template <class T>
Heads<T> heads(const Tensor& t) {
  return {static_cast<T*>(t.raw()), t.stride(0), t.stride(1)};
}

struct AttentionShape {
  int T, H, group, D;  // group: query heads per key head
  float scale;
};

// Which keys a query sees, and which queries a key: [first(t), t] and [s, last(s)).
struct Visible {
  const int32_t* starts;
  int documents, window;

  explicit Visible(const AttentionMask& mask)
      : starts(static_cast<const int32_t*>(mask.starts.raw())),
        documents(static_cast<int>(mask.documents)),
        window(static_cast<int>(mask.window)) {}

  __device__ int document(int t) const {
    int low = 0, high = documents;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (starts[middle] <= t)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  __device__ int first(int t) const {
    const int start = starts[document(t)];
    return window > 0 ? max(start, t - window + 1) : start;
  }
  __device__ int last(int s) const {
    const int end = starts[document(s) + 1];
    return window > 0 ? s + min(end - s, window) : end;
  }
};

struct AttentionInputs {
  const Tensor &q, &k, &v;  // [T, H, D], [T, K, D]
  const AttentionMask& mask;
  float scale;
  RopeAngles rotated = {};  // for gradients

  AttentionShape shape() const {
    return {static_cast<int>(q.dim(0)), static_cast<int>(q.dim(1)),
            static_cast<int>(q.dim(1) / k.dim(1)), static_cast<int>(q.dim(2)), scale};
  }
};

// Rotates a gradient back, for kernels that cannot do it while it is in registers.
void rotate_back(Queue& q, const Tensor& dx, const RopeAngles& rotated);

// delta[h, t] = Σ_d do[t, h, d] o[t, h, d], f32, in a separate kernel.
void dot_rows(Queue& q, const Tensor& delta, const Tensor& d_o, const Tensor& o,
              const AttentionShape& s);

// Shared memory of the kernels of a pass, in bytes.
struct SharedBytes {
  int64_t forward = 0, backward = 0;
};

// One implementation of attention.
struct AttentionKernels {
  void (*forward)(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in);
  // Also computes delta, like dot_rows; key_gradient, called afterwards, reads it.
  void (*query_gradient)(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                         const Tensor& o, const Tensor& lse, const AttentionInputs& in);
  void (*key_gradient)(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                       const Tensor& lse, const Tensor& delta, const AttentionInputs& in);
  SharedBytes (*shared)(int64_t D);  // for heads of this many channels
  bool rotates_back = false;         // whether gradients are rotated back by in.rotated
};
extern const AttentionKernels kWarpAttention;      // any type, heads of up to 256 channels
extern const AttentionKernels kF32Attention;       // f32, up to 128
extern const AttentionKernels kMmaAttention;       // bf16 or f16, up to 128: tensor cores
extern const AttentionKernels kSmallMmaAttention;  // the same, with less shared memory
extern const AttentionKernels kWgmmaAttention;     // bf16, up to 128, on Hopper

// Throws Fault::usage if heads have more channels than a kernel supports.
inline void require_channels(int64_t D, int64_t most) {
  require(D <= most, Fault::usage,
          "attention on a GPU takes heads of at most {} channels; this model's have {}", most, D);
}

// Calls body with the first of the ascending widths that holds the heads' channels.
template <int kWidth, int... kWider, class Body>
void with_width(int64_t D, const Body& body) {
  if constexpr (sizeof...(kWider) > 0)
    if (D > kWidth) return with_width<kWider...>(D, body);
  body.template operator()<kWidth>();
}

}  // namespace capstan::cuda
