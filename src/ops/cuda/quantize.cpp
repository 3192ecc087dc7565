#include "ops/cuda/quantize.h"

#include <memory>

#include "ops/cpu/quantize.h"
#include "ops/cuda/product/linear.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

// A copy of a tensor in host memory.
struct OnHost {
  std::unique_ptr<std::byte[]> bytes;
  Tensor tensor;

  explicit OnHost(const Tensor& like)
      : bytes(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(like.nbytes()))) {
    if (like) tensor = Tensor(bytes.get(), like.dtype(), like.shape());
  }
};

// Whether the host can read it in place, as with data from a file.
bool on_host(const Tensor& x) {
  cudaPointerAttributes found{};
  check(cudaPointerGetAttributes(&found, x.raw()), "ask where a tensor lies");
  return found.type == cudaMemoryTypeUnregistered || found.type == cudaMemoryTypeHost;
}

}  // namespace

// On the host's cores: the values of a model come from its files, and as few bytes as possible
// cross the bus.
void quantize(Queue& q, Quantize kind, const QuantizedPart& part, const Tensor& x) {
  const bool there = on_host(x);
  const OnHost values(there ? Tensor() : x);
  if (there)
    q.synchronize();  // pending writes, if it is pinned
  else
    q.download(values.bytes.get(), x);
  const OnHost packed(part.packed), absmax(part.absmax), scale(part.scale);
  QuantizedPart twin = part;
  twin.packed = packed.tensor;
  twin.absmax = absmax.tensor;
  twin.scale = scale.tensor;
  cpu::quantize(kind, twin, there ? x : values.tensor);
  q.upload(part.packed, packed.bytes.get());
  q.upload(part.absmax, absmax.bytes.get());
  if (part.scale) q.upload(part.scale, scale.bytes.get());
  q.synchronize();
}

void linear(Queue& q, const Tensor& y, const Tensor& x, const QuantizedMatrix& w, const Tensor& b,
            const ThinTerms& terms, const Tensor& chunk, const Tensor& scratch) {
  for (int64_t row = 0; row < w.shape[0]; row += chunk.dim(0)) {
    const int64_t n = std::min(chunk.dim(0), w.shape[0] - row);
    cuda::dequantize(q, chunk.rows(0, n), w, row);
    gemm(q, y.cols(row, n), plain(x), flipped(chunk.rows(0, n)), b ? b.rows(row, n) : b,
         terms.within(row, n), scratch);
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
