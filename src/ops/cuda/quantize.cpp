#include "ops/cuda/quantize.h"

#include <vector>

#include "ops/cpu/quantize.h"
#include "ops/cuda/linear.h"

namespace capstan::cuda {
namespace {

// A tensor's twin in host memory.
struct OnHost {
  std::vector<std::byte> bytes;
  Tensor tensor;

  explicit OnHost(const Tensor& like) : bytes(static_cast<size_t>(like.nbytes())) {
    if (like) tensor = Tensor(bytes.data(), like.dtype(), like.shape());
  }
};

}  // namespace

void quantize(Queue& q, Quantize kind, const QuantizedPart& part, const Tensor& x) {
  OnHost values(x), packed(part.packed), absmax(part.absmax), scale(part.scale);
  q.download(values.bytes.data(), x);
  QuantizedPart twin = part;
  twin.packed = packed.tensor;
  twin.absmax = absmax.tensor;
  twin.scale = scale.tensor;
  cpu::quantize(kind, twin, values.tensor);
  q.upload(part.packed, packed.bytes.data());
  q.upload(part.absmax, absmax.bytes.data());
  if (part.scale) q.upload(part.scale, scale.bytes.data());
  q.synchronize();
}

void linear(Queue& q, const Tensor& y, const Tensor& x, const QuantizedMatrix& w, const Tensor& b,
            const Tensor& chunk, const Tensor& scratch) {
  for (int64_t row = 0; row < w.shape[0]; row += chunk.dim(0)) {
    const int64_t n = std::min(chunk.dim(0), w.shape[0] - row);
    cuda::dequantize(q, chunk.rows(0, n), w, row);
    gemm(q, y.cols(row, n), plain(x), flipped(chunk.rows(0, n)), b ? b.rows(row, n) : b, false,
         scratch);
  }
}

void linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const QuantizedMatrix& w,
                          const Tensor& chunk, const Tensor& scratch) {
  for (int64_t row = 0; row < w.shape[0]; row += chunk.dim(0)) {
    const int64_t n = std::min(chunk.dim(0), w.shape[0] - row);
    cuda::dequantize(q, chunk.rows(0, n), w, row);
    gemm(q, dx, plain(dy.cols(row, n)), plain(chunk.rows(0, n)), {}, row > 0, scratch);
  }
}

}  // namespace capstan::cuda
