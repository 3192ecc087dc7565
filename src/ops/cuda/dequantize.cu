#include "ops/cpu/dynamic_map.h"
#include "ops/cpu/quantize.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/quantize.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlock = 64, kScaleBlock = 256;

struct Code {
  float values[16];
};
struct DynamicValues {
  float values[256];
};

// How a block's absmax is stored: as f32, or itself in 8 bits.
struct Scales {
  const float* plain;  // null with double quantization
  const uint8_t* codes;
  const float* scale;  // one per 256 blocks, then the offset
  int64_t offset;      // where that is
};

// Products and sums round as on the CPU: not fused.
template <int N, class Y>
__global__ void dequantize_4bit_kernel(Y* y, const uint8_t* packed, Scales s, int64_t first,
                                       int64_t n, Code code, DynamicValues dynamic) {
  __shared__ float map[256];
  __shared__ float values[16];
  map[threadIdx.x] = dynamic.values[threadIdx.x];
  if (threadIdx.x < 16) values[threadIdx.x] = code.values[threadIdx.x];
  __syncthreads();
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * N; i < n;
       i += gridDim.x * int64_t{kThreads} * N) {
    const int64_t at = first + i, block = at / kBlock;
    const float most = s.plain != nullptr
                           ? s.plain[block]
                           : __fadd_rn(__fmul_rn(map[s.codes[block]], s.scale[block / kScaleBlock]),
                                       s.scale[s.offset]);
    float out[N];
    if constexpr (N == 8) {
      const uint32_t four = *reinterpret_cast<const uint32_t*>(packed + at / 2);
#pragma unroll
      for (int k = 0; k < 8; ++k)  // the first of two values is in the high half of the byte
        out[k] = __fmul_rn(values[four >> (8 * (k / 2) + 4 * (1 - k % 2)) & 15], most);
    } else {
      const uint8_t both = packed[at / 2];
      out[0] = __fmul_rn(values[at % 2 == 0 ? both >> 4 : both & 15], most);
    }
    store(y + i, out);
  }
}

template <class Y>
__global__ void dequantize_int8_kernel(Y* y, const int8_t* packed, const float* absmax,
                                       int64_t first_row, int64_t rows, int64_t cols) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < rows * cols;
       i += gridDim.x * int64_t{kThreads}) {
    const int64_t row = first_row + i / cols;
    const float steps = static_cast<float>(packed[row * cols + i % cols]);
    y[i] = from_float<Y>(__fmul_rn(__fmul_rn(steps, absmax[row]), 7.874015718698502e-3f));
  }
}

// Dequantizes `rows` rows of a part, starting at `first`, to y.
template <class Y>
void dequantize_part(Queue& q, Y* y, Quantize kind, const QuantizedPart& p, int64_t first,
                     int64_t rows, int64_t cols) {
  const int64_t n = rows * cols;
  if (kind == Quantize::int8) {
    dequantize_int8_kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(q)>>>(
        y, static_cast<const int8_t*>(p.packed.raw()), data<float>(p.absmax), first, rows, cols);
    return;
  }
  Code code;
  std::copy_n(cpu::code_values(kind).begin(), 16, code.values);
  DynamicValues dynamic;
  std::copy_n(cpu::DynamicMap::with_sign().values().begin(), 256, dynamic.values);
  Scales scales{};
  if (p.scale)
    scales = {nullptr, data<uint8_t>(p.absmax), data<float>(p.scale), p.scale.numel() - 1};
  else
    scales.plain = data<float>(p.absmax);
  const bool wide = cols % 8 == 0;
  const auto kernel = wide ? dequantize_4bit_kernel<8, Y> : dequantize_4bit_kernel<1, Y>;
  kernel<<<grid_for(n / (wide ? 8 : 1), kThreads), kThreads, 0, stream_of(q)>>>(
      y, data<uint8_t>(p.packed), scales, first * cols, n, code, dynamic);
}

}  // namespace

void dequantize(Queue& q, const Tensor& y, const QuantizedMatrix& from, int64_t first) {
  const int64_t cols = from.shape[1], end = first + y.dim(0);
  with_type(y.dtype(), [&]<class Y>() {
    for (int i = 0; i < from.count; ++i) {
      const QuantizedPart& p = from.parts[static_cast<size_t>(i)];
      const int64_t begin = std::max(first, p.first_row);
      const int64_t rows = std::min(end, p.first_row + p.rows) - begin;
      if (rows > 0)
        dequantize_part(q, data<Y>(y) + (begin - first) * cols, from.kind, p, begin - p.first_row,
                        rows, cols);
    }
  });
  launched("dequantize");
}

}  // namespace capstan::cuda
