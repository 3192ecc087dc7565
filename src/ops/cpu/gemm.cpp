#include "ops/cpu/gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/parallel.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// Block sizes of the path for bf16 and f16: three f32 panels, 1.25 MiB together, stay in a core's
// share of the cache, and are large enough that conversion costs a few percent of the product.
constexpr int64_t kBlockM = 256, kBlockN = 256, kBlockK = 512;
constexpr int64_t kPanelFloats = kBlockM * kBlockK + kBlockK * kBlockN + kBlockM * kBlockN;

// Below this many multiplications a second thread costs more than it gains.
constexpr int64_t kSerialWork = 1 << 16;
// Up to this many rows the product is bound by reading B, and dot products beat packing it.
constexpr int64_t kFewRows = 4;

struct Problem {
  int64_t m, n, k;
  Matrix a, b;
  void* c;
  DType c_type;
  int64_t c_stride;
  bool add;
  Tensor bias;  // n values, or absent
  float factor;
};

struct Tile {
  int64_t m0, m1, n0, n1;
};

struct Grid {
  int64_t rows = 1, cols = 1;
};

// Splits C into one tile per thread: first by rows, which is best for OpenBLAS, as long as each
// thread gets enough of them; then by columns.
Grid choose_grid(int64_t m, int64_t threads) {
  constexpr int64_t kEnoughRows = 64;
  for (int64_t rows = threads; rows > 1; --rows)
    if (threads % rows == 0 && m / rows >= kEnoughRows) return {rows, threads / rows};
  return {1, threads};
}

// Part `i` of `parts` of [0, n), at multiples of 16 so that the kernel's own tiles stay whole.
std::pair<int64_t, int64_t> slice(int64_t n, int64_t parts, int64_t i) {
  const int64_t units = (n + 15) / 16;
  return {std::min(n, units * i / parts * 16), std::min(n, units * (i + 1) / parts * 16)};
}

const float* f32_at(const Matrix& x, int64_t row, int64_t col) {
  return static_cast<const float*>(x.data) +
         (x.transposed ? col * x.row_stride + row : row * x.row_stride + col);
}

// Adds the bias to f32 sums of columns n0 … n0 + cols, before they are rounded to another type.
void add_bias(const Problem& p, float* sums, int64_t stride, int64_t rows, int64_t n0,
              int64_t cols) {
  if (!p.bias) return;
  with_type(p.bias.dtype(), [&]<class B>() {
    const B* bias = p.bias.as<B>() + n0;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = sums + r * stride;
#pragma omp simd
      for (int64_t i = 0; i < cols; ++i) row[i] += static_cast<float>(bias[i]);
    }
  });
}

void tile_f32(const Problem& p, const Tile& t) {
  // Many rows are faster in chunks if B is not transposed: by 1 to 2% on a Neoverse N1.
  const int64_t rows = t.m1 - t.m0, piece = !p.b.transposed && rows >= 1024 ? 256 : rows;
  for (int64_t m0 = t.m0; m0 < t.m1; m0 += piece) {
    const int64_t m = std::min(piece, t.m1 - m0);
    float* c = static_cast<float*>(p.c) + m0 * p.c_stride + t.n0;
    sgemm(m, t.n1 - t.n0, p.k, p.factor, {f32_at(p.a, m0, 0), p.a.row_stride, p.a.transposed},
          {f32_at(p.b, 0, t.n0), p.b.row_stride, p.b.transposed}, p.add ? 1.0f : 0.0f, c,
          p.c_stride);
    add_bias(p, c, p.c_stride, m, t.n0, t.n1 - t.n0);
  }
}

// A block of an operand as f32: in place, or converted into `panel`.
MatrixF32 widen(const Matrix& x, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                float* panel) {
  if (x.dtype == DType::f32) return {f32_at(x, row0, col0), x.row_stride, x.transposed};
  if (x.transposed) {  // as stored
    std::swap(row0, col0);
    std::swap(rows, cols);
  }
  if (x.quantized != nullptr) {
    for (int64_t r = 0; r < rows; ++r)
      dequantize_row(*x.quantized, row0 + r, col0, cols, panel + r * cols);
    return {panel, cols, x.transposed};
  }
  with_type(x.dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x.data) + row0 * x.row_stride + col0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* in = from + r * x.row_stride;
      float* out = panel + r * cols;
#pragma omp simd
      for (int64_t i = 0; i < cols; ++i) out[i] = static_cast<float>(in[i]);
    }
  });
  return {panel, cols, x.transposed};
}

template <class C>
void store_block(const Problem& p, int64_t m0, int64_t rows, int64_t n0, int64_t cols,
                 const float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    C* out = static_cast<C*>(p.c) + (m0 + r) * p.c_stride + n0;
    const float* in = sums + r * cols;
    if (p.add) {
#pragma omp simd
      for (int64_t i = 0; i < cols; ++i) store(out[i], static_cast<float>(out[i]) + in[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < cols; ++i) store(out[i], in[i]);
    }
  }
}

void tile_mixed(const Problem& p, const Tile& t, float* panels) {
  float* const panel_a = panels;
  float* const panel_b = panel_a + kBlockM * kBlockK;
  float* const panel_c = panel_b + kBlockK * kBlockN;
  for (int64_t m0 = t.m0; m0 < t.m1; m0 += kBlockM) {
    const int64_t rows = std::min(kBlockM, t.m1 - m0);
    for (int64_t n0 = t.n0; n0 < t.n1; n0 += kBlockN) {
      const int64_t cols = std::min(kBlockN, t.n1 - n0);
      const bool direct = p.c_type == DType::f32;
      float* sums = direct ? static_cast<float*>(p.c) + m0 * p.c_stride + n0 : panel_c;
      const int64_t stride = direct ? p.c_stride : cols;
      for (int64_t k0 = 0; k0 < p.k; k0 += kBlockK) {
        const int64_t depth = std::min(kBlockK, p.k - k0);
        const bool keep = k0 > 0 || (direct && p.add);
        sgemm(rows, cols, depth, p.factor, widen(p.a, m0, rows, k0, depth, panel_a),
              widen(p.b, k0, depth, n0, cols, panel_b), keep ? 1.0f : 0.0f, sums, stride);
      }
      add_bias(p, sums, stride, rows, n0, cols);
      if (direct) continue;
      with_type(p.c_type, [&]<class C>() { store_block<C>(p, m0, rows, n0, cols, panel_c); });
    }
  }
}

template <class A, class B>
float dot(const A* a, const B* b, int64_t k) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < k; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return sum;
}

// C = A Bᵀ for a few rows of A: reads each row of B once. Used for decoding.
template <class A, class B, class C>
void few_rows(const Problem& p) {
  parallel_for(p.n, std::max<int64_t>(1, kSerialWork / p.k), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const B* b = static_cast<const B*>(p.b.data) + j * p.b.row_stride;
      float bias = 0;
      add_bias(p, &bias, 1, 1, j, 1);
      for (int64_t i = 0; i < p.m; ++i) {
        const A* a = static_cast<const A*>(p.a.data) + i * p.a.row_stride;
        const float sum = p.factor * dot(a, b, p.k) + bias;
        C& c = static_cast<C*>(p.c)[i * p.c_stride + j];
        c = C(p.add ? static_cast<float>(c) + sum : sum);
      }
    }
  });
}

// The same for a quantized B: dequantizes each of its rows once, in chunks.
template <class A, class C>
void few_rows_quantized(const Problem& p) {
  constexpr int64_t kPiece = 512;
  parallel_for(p.n, std::max<int64_t>(1, kSerialWork / p.k), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      float sums[kFewRows] = {}, piece[kPiece], bias = 0;
      add_bias(p, &bias, 1, 1, j, 1);
      for (int64_t k0 = 0; k0 < p.k; k0 += kPiece) {
        const int64_t depth = std::min(kPiece, p.k - k0);
        dequantize_row(*p.b.quantized, j, k0, depth, piece);
        for (int64_t i = 0; i < p.m; ++i)
          sums[i] += dot(static_cast<const A*>(p.a.data) + i * p.a.row_stride + k0, piece, depth);
      }
      for (int64_t i = 0; i < p.m; ++i) {
        C& c = static_cast<C*>(p.c)[i * p.c_stride + j];
        c = C((p.add ? static_cast<float>(c) : 0.0f) + p.factor * sums[i] + bias);
      }
    }
  });
}

void few_rows_any(const Problem& p) {
  if (p.b.quantized != nullptr)
    return with_types(p.a.dtype, p.c_type,
                      [&]<class A, class C>() { few_rows_quantized<A, C>(p); });
  with_types(p.a.dtype, p.b.dtype, p.c_type,
             [&]<class A, class B, class C>() { few_rows<A, B, C>(p); });
}

// An empty sum: the result for a batch without tokens.
void product_of_nothing(const Problem& p) {
  if (p.add) return;
  for (int64_t r = 0; r < p.m; ++r)
    std::memset(static_cast<std::byte*>(p.c) + r * p.c_stride * size_of(p.c_type), 0,
                static_cast<size_t>(p.n * size_of(p.c_type)));
}

}  // namespace

int64_t gemm_scratch(DType a, DType b, DType c) {
  if (a == DType::f32 && b == DType::f32 && c == DType::f32) return 0;
  return num_threads() * kPanelFloats * static_cast<int64_t>(sizeof(float));
}

void gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c, DType c_type,
          int64_t c_stride, bool add, void* scratch, const Tensor& bias, float factor) {
  blas();  // here it may throw
  if (m == 0 || n == 0) return;

  const Problem p{m, n, k, a, b, c, c_type, c_stride, add, bias, factor};
  if (k == 0) return product_of_nothing(p);
  if (m <= kFewRows && !a.transposed && b.transposed) return few_rows_any(p);
  const bool plain = gemm_scratch(a.dtype, b.dtype, c_type) == 0;
  const Grid grid = m * n * k <= kSerialWork ? Grid{} : choose_grid(m, num_threads());
  parallel_for(grid.rows * grid.cols, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [m0, m1] = slice(m, grid.rows, i / grid.cols);
      const auto [n0, n1] = slice(n, grid.cols, i % grid.cols);
      if (m0 == m1 || n0 == n1) continue;
      if (plain)
        tile_f32(p, {m0, m1, n0, n1});
      else
        tile_mixed(p, {m0, m1, n0, n1}, static_cast<float*>(scratch) + i * kPanelFloats);
    }
  });
}

}  // namespace capstan::cpu
