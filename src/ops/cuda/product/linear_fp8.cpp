#include "ops/cuda/product/linear_fp8.h"

#include "ops/cuda/product/fp8.h"
#include "ops/cuda/product/product.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

// The scratch of one op, allocated from front to back.
class Room {
 public:
  Room(Queue& q, const Tensor& scratch)
      : workspace_(static_cast<std::byte*>(scratch.raw())),
        rest_(workspace_ + kGemmWorkspace + kFp8Scales) {
    require(q.cuda().fp8(), Fault::device,
            "precision: fp8-mixed needs a GPU with matrix products in FP8 (compute capability 8.9 "
            "or above), which this one has not; use bf16-mixed");
  }

  std::byte* workspace() const { return workspace_; }
  float* scale(int i) const {
    return reinterpret_cast<float*>(workspace_ + kGemmWorkspace + i * kFp8Scale);
  }
  Tensor codes(int64_t rows, int64_t cols) {
    const Tensor t(rest_, DType::u8, {rows, cols});
    rest_ += aligned_to_buffers(t.nbytes());
    return t;
  }
  // For the transpose of a matrix of this many rows and columns.
  Tensor turned_codes(int64_t rows, int64_t cols) {
    return codes(cols, turned_stride(rows)).cols(0, turned_rows(rows));
  }
  std::byte* place() const { return rest_; }
  void go_back(std::byte* place) { rest_ = place; }

 private:
  std::byte* workspace_;
  std::byte* rest_;
};

void clear(Queue& q, float* values, size_t count) {
  check(cudaMemsetAsync(values, 0, count * sizeof(float), stream_of(q)), "clear maxima");
}

void multiply(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias,
              bool add, std::byte* workspace) {
  const Product product(c, a, b, bias, add, false);
  Context& context = q.cuda();
  product.multiply(context, method_for(context, product, workspace), workspace);
}

}  // namespace

void linear_fp8(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Tensor& amax, const Tensor& scratch) {
  Room room(q, scratch);
  float *const x_amax = amax.as<float>(), *const w_amax = x_amax + 1;
  float *const x_scale = room.scale(0), *const w_scale = room.scale(1);
  const Tensor x8 = room.codes(x.dim(0), x.dim(1)), w8 = room.codes(w.dim(0), w.dim(1));
  clear(q, x_amax, 2);
  find_amax(q, x_amax, x);
  convert(q, Fp8::e4m3, x_amax, x_scale, x, x8, {});
  find_amax(q, w_amax, w);
  convert(q, Fp8::e4m3, w_amax, w_scale, w, w8, {});
  const bool fused = b && b.dtype() == DType::bf16 && y.dtype() == DType::bf16 &&
                     reinterpret_cast<uintptr_t>(b.raw()) % 16 == 0;
  multiply(q, y, {x8, false, Fp8::e4m3, x_scale}, {w8, true, Fp8::e4m3, w_scale},
           fused ? b : Tensor(), false, room.workspace());
  if (b && !fused) add_bias(q, y, b);
}

void linear_fp8_backward(Queue& q, const Tensor& dx, const Tensor& dw, const Tensor& db,
                         const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& amax,
                         Write mode, const Tensor& scratch) {
  const int64_t T = x.dim(0), O = w.dim(0), I = w.dim(1);
  Room room(q, scratch);
  float *const dy_amax = room.scale(0), *const dy_scale = room.scale(1);
  float *const x_scale = room.scale(2), *const w_scale = room.scale(3);
  const Tensor dy8 = dx ? room.codes(T, O) : Tensor(), dy8_turned = room.turned_codes(T, O);
  clear(q, dy_amax, 1);
  find_amax(q, dy_amax, dy);
  convert(q, Fp8::e5m2, dy_amax, dy_scale, dy, dy8, dy8_turned);

  std::byte* const place = room.place();
  const Tensor x8 = room.turned_codes(T, I);
  convert(q, Fp8::e4m3, amax.as<float>(), x_scale, x, {}, x8);
  multiply(q, dw, {dy8_turned, false, Fp8::e5m2, dy_scale}, {x8, true, Fp8::e4m3, x_scale}, {},
           mode == Write::add, room.workspace());
  if (db) bias_backward(q, db, dy, room.workspace());
  if (!dx) return;

  room.go_back(place);  // x is no longer needed
  const Tensor w8 = room.codes(I, O);
  convert(q, Fp8::e4m3, amax.as<float>() + 1, w_scale, w, {}, w8);
  multiply(q, dx, {dy8, false, Fp8::e5m2, dy_scale}, {w8, true, Fp8::e4m3, w_scale}, {}, false,
           room.workspace());
}

}  // namespace capstan::cuda
