#include "ops/cuda/device.cuh"
#include "ops/cuda/gemm.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kColumns = 32, kStretches = kThreads / kColumns;

template <class P>
__global__ void add_bias_kernel(P y, int64_t stride, P b, int64_t T, int64_t O) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < T * O;
       i += gridDim.x * int64_t{kThreads}) {
    float v[1], bias[1];
    load(v, y + (i / O * stride + i % O));
    load(bias, b + i % O);
    v[0] += bias[0];
    store(y + (i / O * stride + i % O), v);
  }
}

// A block has kColumns columns; each of its warps sums every kStretches-th row.
template <class P>
__global__ void bias_backward_kernel(P db, P dy, int64_t stride, int64_t T, int64_t O) {
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int stretch = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t o = blockIdx.x * int64_t{kColumns} + column;
  float sum = 0;
  if (o < O)
    for (int64_t t = stretch; t < T; t += kStretches) {
      float v[1];
      load(v, dy + (t * stride + o));
      sum += v[0];
    }
  __shared__ float room[kStretches][kColumns];
  room[stretch][column] = sum;
  __syncthreads();
  if (stretch != 0 || o >= O) return;
  float total[1];
  load(total, db + o);
  float added = 0;
  for (int s = 0; s < kStretches; ++s) added += room[s][column];
  total[0] += added;
  store(db + o, total);
}

}  // namespace

void add_bias(Queue& q, const Tensor& y, const Tensor& b) {
  const int64_t T = y.dim(0), O = y.dim(1);
  with_pointers(
      [&]<class P>(P to, P bias) {
        add_bias_kernel<<<grid_for(T * O, kThreads), kThreads, 0, stream_of(q)>>>(to, y.stride(0),
                                                                                  bias, T, O);
      },
      y, b);
  launched("add_bias");
}

void bias_backward(Queue& q, const Tensor& db, const Tensor& dy) {
  const int64_t T = dy.dim(0), O = dy.dim(1);
  if (T == 0) return;
  with_pointers(
      [&]<class P>(P to, P from) {
        bias_backward_kernel<<<static_cast<unsigned>(blocks_for(O, kColumns)), kThreads, 0,
                               stream_of(q)>>>(to, from, dy.stride(0), T, O);
      },
      db, dy);
  launched("bias backward");
}

}  // namespace capstan::cuda
