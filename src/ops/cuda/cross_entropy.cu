#include "ops/cuda/softmax_rows.cuh"

namespace capstan::cuda {
namespace {

// One block per token; any row length and alignment.
template <class X>
__global__ void cross_entropy_kernel(X* logits, double* losses, const int32_t* labels,
                                     const int32_t* order, int64_t first, int64_t T, int64_t V,
                                     ScalarArgument factor_of_loss, bool backward) {
  constexpr int kThreads = 512;
  const float scale = factor_of_loss.read();
  X* const row = logits + blockIdx.x * V;
  const auto [index, label] = token_row(labels, order, first, T);
  if (label == kIgnore) {
    if (threadIdx.x == 0) losses[index] = 0;
    if (!backward) return;
    for (int64_t v = threadIdx.x; v < V; v += kThreads) row[v] = from_float<X>(0);
    return;
  }
  const float target = to_float(row[label]);
  MaxSum mine{-INFINITY, 0};
  for (int64_t v = threadIdx.x; v < V; v += kThreads) mine = joined(mine, {to_float(row[v]), 1});
  const MaxSum all = block_max_sum<kThreads>(mine);
  if (threadIdx.x == 0) losses[index] = double{all.most + logf(all.sum)} - double{target};
  if (!backward) return;
  const float factor = scale / all.sum;
  for (int64_t v = threadIdx.x; v < V; v += kThreads) {
    const float gradient = expf(to_float(row[v]) - all.most) * factor;
    row[v] = from_float<X>(gradient - (v == label ? scale : 0.0f));
  }
}

// The same for rows of whole packs: each is read from memory once, as far as shared memory holds
// it.
template <int kThreads, class X>
__global__ void __launch_bounds__(kThreads)
    packed_cross_entropy_kernel(X* logits, double* losses, const int32_t* labels,
                                const int32_t* order, int64_t first, int64_t T, int64_t V,
                                ScalarArgument factor_of_loss, bool backward, int room) {
  constexpr int N = kPack<X>;
  const float scale = factor_of_loss.read();
  extern __shared__ __align__(16) uint4 kept[];
  X* const values = logits + blockIdx.x * V;
  const RowOfPacks<kThreads, X> row{reinterpret_cast<uint4*>(values), kept, static_cast<int>(V / N),
                                    room};
  const auto [index, label] = token_row(labels, order, first, T);
  if (label == kIgnore) {
    if (threadIdx.x == 0) losses[index] = 0;
    if (!backward) return;
    for (int i = static_cast<int>(threadIdx.x); i < row.packs; i += kThreads)
      __stcs(row.row + i, make_uint4(0, 0, 0, 0));
    return;
  }
  const float target = to_float(values[label]);
  MaxSum mine{-INFINITY, 0};
  row.template for_each<true>([&](const uint4& pack, int) {
    float x[N];
    unpack<X>(x, pack);
    add_pack<X>(mine, x);
  });
  const MaxSum all = block_max_sum<kThreads>(mine);
  if (threadIdx.x == 0) losses[index] = double{all.most + logf(all.sum)} - double{target};
  if (!backward) return;
  const float factor = scale / all.sum;
  row.template for_each<false>([&](const uint4& pack, int i) {
    float x[N];
    unpack<X>(x, pack);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = exp_of<X>(x[k] - all.most) * factor;
    if (label / N == i)
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] -= label % N == k ? scale : 0.0f;
    __stcs(row.row + i, packed<X>(x));
  });
}

// Three blocks of 512 threads share an SM if each can keep its row; for longer rows, one block of
// 1024 keeps as much as fits.
constexpr int64_t kShortRow = 72 << 10, kMostKept = 216 << 10;

template <int kThreads, class X>
void launch_packed(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& labels,
                   const int32_t* order, int64_t first, ScalarArgument scale, bool backward) {
  const int64_t V = logits.dim(1);
  const int64_t room = std::min(kMostKept, shared_room(q) / 16 * 16);
  const int64_t bytes = backward ? std::min(V * int64_t{sizeof(X)}, room) : 0;
  const auto kernel = packed_cross_entropy_kernel<kThreads, X>;
  allow(kernel, static_cast<int>(room));
  kernel<<<static_cast<unsigned>(logits.dim(0)), kThreads, static_cast<size_t>(bytes),
           stream_of(q)>>>(data<X>(logits), data<double>(losses), data<int32_t>(labels), order,
                           first, labels.numel(), V, scale, backward, static_cast<int>(bytes / 16));
}

}  // namespace

void cross_entropy(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& labels,
                   const Tensor& order, int64_t first, const Scalar& factor_of_loss,
                   bool backward) {
  const ScalarArgument scale(factor_of_loss);
  const int64_t rows = logits.dim(0), V = logits.dim(1);
  if (rows == 0) return;
  const int32_t* const places = order ? data<int32_t>(order) : nullptr;
  with_type(logits.dtype(), [&]<class X>() {
    if (!packs(kPack<X>, logits))
      cross_entropy_kernel<X><<<static_cast<unsigned>(rows), 512, 0, stream_of(q)>>>(
          data<X>(logits), data<double>(losses), data<int32_t>(labels), places, first,
          labels.numel(), V, scale, backward);
    else if (V * int64_t{sizeof(X)} <= kShortRow)
      launch_packed<512, X>(q, logits, losses, labels, places, first, scale, backward);
    else
      launch_packed<1024, X>(q, logits, losses, labels, places, first, scale, backward);
  });
  launched("cross_entropy");
}

}  // namespace capstan::cuda
