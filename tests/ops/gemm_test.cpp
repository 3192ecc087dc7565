#include "ops/cpu/gemm.h"

#include <ostream>

#include "ops/reference.h"

namespace capstan::test {
namespace {

// C[m,n] = A[m,k] B[k,n] (+ C).
struct Product {
  int64_t m = 1, n = 1, k = 1;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  bool add = false;
  int64_t gap = 0;  // values between the rows of each matrix that belong to somebody else
};

std::ostream& operator<<(std::ostream& to, const Product& p) {
  return to << p.m << " x " << p.n << " x " << p.k << ' ' << name_of(p.a)
            << (p.a_transposed ? "'" : "") << ' ' << name_of(p.b) << (p.b_transposed ? "'" : "")
            << " -> " << name_of(p.c) << (p.add ? ", added" : "") << ", gap " << p.gap;
}

Values transposed(const Values& x, int64_t rows, int64_t cols) {
  Values result(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) result[idx(c * rows + r)] = x[idx(r * cols + c)];
  return result;
}

// Of a and b as they are stored.
Values reference(const Product& p, const Values& a, const Values& b) {
  return product_f64(p.m, p.n, p.k, a, p.a_transposed, b, p.b_transposed);
}

class Gemm : public testing::Test {
 protected:
  // A matrix as it is stored: a view of normal values, `gap` wider than it.
  struct Stored {
    Buffer buffer;
    Tensor view;
  };
  Stored store(DType dtype, int64_t rows, int64_t cols, int64_t gap, bool transposed) {
    if (transposed) std::swap(rows, cols);
    Stored s{buffer_of(q_, dtype, {rows, cols + gap}, normal_values(rows * (cols + gap), ++seed_)),
             {}};
    s.view = s.buffer->cols(0, cols);
    return s;
  }

  void multiply(const Product& p, const Tensor& c, const Tensor& a, const Tensor& b) {
    const Buffer scratch = q_.scratch(DType::u8, {cpu::gemm_scratch(p.a, p.b, p.c)}, "panels");
    cpu::gemm(p.m, p.n, p.k, cpu::matrix(a, p.a_transposed), cpu::matrix(b, p.b_transposed),
              c.raw(), p.c, c.stride(0), p.add, scratch->raw());
  }

  void expect_matches_f64(const Product& p) {
    const Stored a = store(p.a, p.m, p.k, p.gap, p.a_transposed);
    const Stored b = store(p.b, p.k, p.n, p.gap, p.b_transposed);
    const Stored c = store(p.c, p.m, p.n, p.gap, false);
    Values expected = reference(p, values(a.view), values(b.view));
    if (p.add) {
      const Values old = values(c.view);
      for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
    }
    const Values gap = p.gap > 0 ? values(c.buffer->cols(p.n, p.gap)) : Values();
    multiply(p, c.view, a.view, b.view);
    EXPECT_LT(error_of_walks(p, values(c.view), expected), tolerance(p.c, p.k)) << p;
    if (p.gap == 0) return;
    EXPECT_EQ(values(c.buffer->cols(p.n, p.gap)), gap) << p << ": wrote between the rows";
  }

  // Relative to the size of the sums, or to what they grow to on the way: a walk of k steps of
  // size 1. A lone sum may end near 0.
  static double error_of_walks(const Product& p, const Values& found, const Values& expected) {
    const double walks = std::sqrt(static_cast<double>(p.m * p.n * p.k));
    return error(found, expected) * std::min(1.0, norm(expected) / walks);
  }

  Values values(const Tensor& t) { return values_of(q_, t); }

  Arena arena_{Arena::Heap{}};
  Queue q_{Device::cpu, arena_};
  uint64_t seed_ = 0;
};

TEST_F(Gemm, MatchesF64InEveryLayoutAndType) {
  for (const DType a : kComputeTypes)
    for (const DType b : types_beside({a}))
      for (const DType c : types_beside({a, b}))
        for (const bool a_transposed : {false, true})
          for (const bool b_transposed : {false, true})
            for (const bool add : {false, true}) {
              expect_matches_f64({1, 1, 1, a, b, c, a_transposed, b_transposed, add});
              expect_matches_f64({3, 33, 31, a, b, c, a_transposed, b_transposed, add, 2});
              expect_matches_f64({33, 100, 57, a, b, c, a_transposed, b_transposed, add, 5});
            }
}

TEST_F(Gemm, SizesAroundTheEdgesOfTiles) {
  for (const int64_t m : {1, 15, 16, 17, 33})
    for (const int64_t n : {1, 15, 16, 17, 257})
      for (const int64_t k : {1, 31, 100}) {
        expect_matches_f64({.m = m, .n = n, .k = k});
        expect_matches_f64({.m = m, .n = n, .k = k, .b = DType::bf16, .add = true});
      }
}

// The mixed path goes through blocks of 256 x 256 x 512.
TEST_F(Gemm, SizesBeyondOneBlockOfTheMixedPath) {
  for (const DType c : kComputeTypes)
    for (const bool add : {false, true}) {
      expect_matches_f64({257, 258, 513, DType::bf16, DType::bf16, c, false, true, add});
      expect_matches_f64({31, 33, 1100, DType::bf16, DType::f32, c, true, false, add, 3});
    }
}

TEST_F(Gemm, FewRowsEqualTheGeneralPath) {
  for (const int64_t m : {1, 2, 3, 4, 5})
    for (const int64_t k : {1, 31, 257, 1000}) {
      const Product few{.m = m, .n = 100, .k = k, .b_transposed = true};
      const Product general{.m = m, .n = 100, .k = k};
      const Stored a = store(few.a, m, k, 0, false), b = store(few.b, k, 100, 0, true);
      const Buffer upright = buffer_of(q_, few.b, {k, 100}, transposed(values(b.view), 100, k));
      const Stored c1 = store(few.c, m, 100, 0, false), c2 = store(few.c, m, 100, 0, false);
      multiply(few, c1.view, a.view, b.view);
      multiply(general, c2.view, a.view, upright);
      // Each of the two is off by as much as rounding explains.
      EXPECT_LT(error(values(c1.view), values(c2.view)), 2 * tolerance(few.c, k)) << few;
    }
}

TEST_F(Gemm, FewRowsOfALongProductAreSharedByThreads) {
  for (const DType b : kComputeTypes)
    expect_matches_f64({.m = 2, .n = 999, .k = 300, .b = b, .b_transposed = true, .gap = 1});
}

TEST_F(Gemm, ASumOfNothingIsZero) {
  for (const DType c : kComputeTypes)
    for (const bool b_transposed : {false, true}) {
      Product p{.m = 3, .n = 5, .k = 0, .b = DType::bf16, .c = c, .b_transposed = b_transposed};
      p.a_transposed = !b_transposed;
      const Stored a = store(p.a, 3, 1, 0, p.a_transposed), b = store(p.b, 1, 5, 0, b_transposed);
      const Stored sums = store(p.c, 3, 5, 2, false);
      const Values old = values(sums.view), gap = values(sums.buffer->cols(5, 2));
      p.add = true;
      multiply(p, sums.view, a.view, b.view);
      EXPECT_EQ(values(sums.view), old) << p;
      p.add = false;
      multiply(p, sums.view, a.view, b.view);
      EXPECT_EQ(values(sums.view), Values(15, 0.0)) << p;
      EXPECT_EQ(values(sums.buffer->cols(5, 2)), gap) << p;
    }
}

TEST_F(Gemm, ReplacingDoesNotReadWhatIsThere) {
  for (const DType c : kComputeTypes)
    for (const int64_t m : {2, 33}) {
      const Product p{.m = m, .n = 17, .k = 9, .c = c, .b_transposed = true};
      const Stored a = store(p.a, m, 9, 0, false), b = store(p.b, 9, 17, 0, true);
      const Buffer result = buffer_of(q_, c, {m, 17}, Values(idx(m * 17), NAN));
      multiply(p, result, a.view, b.view);
      const Values expected = reference(p, values(a.view), values(b.view));
      EXPECT_LT(error(values(result), expected), tolerance(c, 9)) << p;
    }
}

TEST_F(Gemm, NanIsNotHidden) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t m : {1, 9}) {
      const Product p{m, 3, 2, dtype, dtype, dtype, false, true};
      const Stored b = store(dtype, 2, 3, 0, true), c = store(dtype, m, 3, 0, false);
      Values a(idx(2 * m), 1.0);
      a[1] = NAN;
      multiply(p, c.view, buffer_of(q_, dtype, {m, 2}, a), b.view);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(values(c.view)[i])) << p;
    }
}

TEST_F(Gemm, AnyNumberOfThreads) {
  const int usual = omp_get_max_threads();
  for (const DType dtype : kComputeTypes) {
    const Product p{100, 257, 129, dtype, dtype, DType::f32};
    const Stored a = store(p.a, p.m, p.k, 0, false), b = store(p.b, p.k, p.n, 0, false);
    const Stored c = store(p.c, p.m, p.n, 0, false);
    const Values expected = reference(p, values(a.view), values(b.view));
    for (const int threads : {1, 2, 3, 7}) {
      omp_set_num_threads(threads);
      multiply(p, c.view, a.view, b.view);
      const Values once = values(c.view);
      EXPECT_LT(error(once, expected), tolerance(p.c, p.k)) << threads << " threads, " << p;
      multiply(p, c.view, a.view, b.view);
      EXPECT_EQ(values(c.view), once) << threads << " threads, " << p;
    }
    omp_set_num_threads(usual);
  }
}

TEST_F(Gemm, ScratchIsForMixedTypesOnly) {
  EXPECT_EQ(cpu::gemm_scratch(DType::f32, DType::f32, DType::f32), 0);
  const int64_t panels = cpu::gemm_scratch(DType::bf16, DType::f32, DType::f32);
  EXPECT_GT(panels, 0);
  EXPECT_EQ(cpu::gemm_scratch(DType::f32, DType::bf16, DType::f32), panels);
  EXPECT_EQ(cpu::gemm_scratch(DType::f32, DType::f32, DType::bf16), panels);
}

}  // namespace
}  // namespace capstan::test
