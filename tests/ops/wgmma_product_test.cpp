// Our kernel for products of bf16 matrices on Hopper GPUs.
#if CAPSTAN_WITH_CUDA
#include "ops/cuda/product/wgmma_product.h"

#include <ostream>

#include "ops/cuda/product/product.h"
#include "ops/elementwise.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

using cuda::Factor;
using cuda::WgmmaKernel;

// c[M,N] = factor · a[M,K] b, which is stored as [K,N] or, transposed, as [N,K].
struct Problem {
  int64_t M, N, K;
  bool transposed = true;
  float factor = 1;
  int64_t gap = 0;  // values between the rows of each matrix that belong to somebody else
};

std::ostream& operator<<(std::ostream& to, const Problem& p) {
  return to << p.M << " x " << p.N << " x " << p.K << (p.transposed ? ", b'" : ", b") << ", factor "
            << p.factor << ", gap " << p.gap;
}

// The largest error of any value, relative to it or, where it is nearly 0, to what K products of
// normal values usually add up to; infinite with a NaN. Rounding to bf16 explains 2^-8.
double worst_error(const Values& found, const Values& expected, const Problem& p) {
  const double usual = 0.05 * std::max(std::abs(double{p.factor}), 0.1) * std::sqrt(double(p.K));
  double worst = found.size() == expected.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double off = std::abs(found[i] - expected[i]) / (std::abs(expected[i]) + usual);
    worst = off <= worst ? worst : std::isnan(off) ? INFINITY : off;
  }
  return worst;
}
constexpr double kRounding = 0x1.02p-8;

std::byte* bytes_of(const Buffer& buffer) {
  return static_cast<std::byte*>(buffer->raw());
}

struct Matrix {
  Buffer buffer;  // wider than the view by the gap
  Tensor view;
};

class WgmmaProduct : public OnEveryDevice {
 protected:
  void SetUp() override {
    if (q_.device() != Device::cuda || !context().wgmma()) GTEST_SKIP() << "a Hopper GPU";
  }
  cuda::Context& context() { return q_.cuda(); }

  // Normal values; NaN in the gap, which nothing may come from.
  Matrix matrix(int64_t rows, int64_t cols, int64_t gap) {
    Values all = normal_values(rows * (cols + gap), ++seed_);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = cols; c < cols + gap; ++c) all[idx(r * (cols + gap) + c)] = NAN;
    Matrix m{of(DType::bf16, {rows, cols + gap}, all), {}};
    m.view = m.buffer->cols(0, cols);
    return m;
  }

  struct Operands {
    Problem p;
    Matrix a, b, c;

    Factor factor_a() const { return {a.view}; }
    Factor factor_b() const { return {b.view, p.transposed}; }
    cuda::Product product() const {
      return {c.view, factor_a(), factor_b(), {}, false, false, p.factor};
    }
  };
  // c is NaN, and has two rows more than the product.
  Operands make(const Problem& p) {
    Operands o{p,
               matrix(p.M, p.K, p.gap),
               p.transposed ? matrix(p.N, p.K, p.gap) : matrix(p.K, p.N, p.gap),
               {empty(DType::bf16, {p.M + 2, p.N + p.gap}), {}}};
    o.c.view = o.c.buffer->rows(0, p.M).cols(0, p.N);
    return o;
  }
  void multiply(const Operands& o) {
    const cuda::Product product = o.product();
    ASSERT_TRUE(product.takes(context(), WgmmaKernel{})) << o.p;
    product.multiply(context(), WgmmaKernel{}, nullptr);
  }
  Values expected(const Operands& o) {
    Values c =
        product_f64(o.p.M, o.p.N, o.p.K, values(o.a.view), false, values(o.b.view), o.p.transposed);
    for (double& v : c) v *= double{o.p.factor};
    return c;
  }
  void expect_matches_f64(const Problem& p) {
    const Operands o = make(p);
    multiply(o);
    EXPECT_LT(worst_error(values(o.c.view), expected(o), p), kRounding) << p;
    Values around = values(o.c.buffer->rows(p.M, 2));
    if (p.gap > 0) {
      const Values gap = values(o.c.buffer->rows(0, p.M).cols(p.N, p.gap));
      around.insert(around.end(), gap.begin(), gap.end());
    }
    for (const double v : around) ASSERT_TRUE(std::isnan(v)) << p << ": wrote beside the matrix";
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, WgmmaProduct, testing::ValuesIn(devices_present()), device_name);

TEST_P(WgmmaProduct, MatchesF64AtTheEdgesOfTiles) {
  for (const bool transposed : {true, false}) {
    expect_matches_f64({1, 8, 8, transposed});
    expect_matches_f64({128, 256, 64, transposed});
    expect_matches_f64({256, 256, 64, transposed});
    for (const int64_t M : {63, 127, 129, 257}) expect_matches_f64({M, 72, 72, transposed});
    for (const int64_t N : {8, 64, 128, 136, 248, 264, 520})
      expect_matches_f64({130, N, 40, transposed});
    // Four steps of 64 are in shared memory at once.
    for (const int64_t K : {56, 120, 128, 256, 264, 320, 1032})
      expect_matches_f64({140, 80, K, transposed});
  }
}

TEST_P(WgmmaProduct, ReadsAndWritesViewsAndNothingBesideThem) {
  for (const bool transposed : {true, false})
    for (const int64_t gap : {8, 64, 200})
      expect_matches_f64({.M = 131, .N = 312, .K = 88, .transposed = transposed, .gap = gap});
}

TEST_P(WgmmaProduct, MultipliesByTheFactorBeforeRounding) {
  for (const bool transposed : {true, false})
    for (const float factor : {0.0f, -1.0f, 0.3f})
      expect_matches_f64({.M = 60, .N = 40, .K = 72, .transposed = transposed, .factor = factor});
}

// Several rounds of 66 pairs of tiles, which is what 132 multiprocessors compute at once: whether
// the last is cut, whether the last band is narrower, and edges of all three.
const Problem kLarge[] = {{2040, 4856, 200}, {2048, 5376, 64}, {2716, 3312, 136}, {300, 40000, 72}};

TEST_P(WgmmaProduct, ManyTilesAreAsTheLibraryComputesThem) {
  const Buffer workspace = q_.scratch(DType::u8, {cuda::kGemmWorkspace}, "workspace");
  for (Problem p : kLarge)
    for (const bool transposed : {true, false}) {
      p.transposed = transposed;
      p.factor = 0.7f;
      const Operands o = make(p);
      multiply(o);
      const Values ours = values(o.c.view);
      const cuda::Product product = o.product();
      product.multiply(context(), product.proposals(context(), 1)[0], bytes_of(workspace));
      // Each of the two is off by as much as rounding explains.
      EXPECT_LT(worst_error(ours, values(o.c.view), p), 2 * kRounding) << p;
    }
}

TEST_P(WgmmaProduct, EveryRunGivesTheSameBits) {
  const Operands o = make(kLarge[0]);
  multiply(o);
  const Values first = values(o.c.view);
  for (int run = 0; run < 20; ++run) multiply(o);
  EXPECT_TRUE(first == values(o.c.view));
}

TEST_P(WgmmaProduct, NanIsNotHidden) {
  for (const bool transposed : {true, false}) {
    const Operands o = make({200, 320, 136, transposed});
    Values a(200 * 136, 1.0);
    a[129 * 136 + 135] = NAN;
    copy(q_, o.a.buffer, of(DType::bf16, {200, 136}, a));
    multiply(o);
    const Values c = values(o.c.view);
    for (int64_t m = 0; m < 200; ++m)
      for (int64_t n = 0; n < 320; ++n)
        ASSERT_EQ(std::isnan(c[idx(m * 320 + n)]), m == 129) << m << ", " << n;
  }
}

// The first time as it is, the second recorded, then replayed.
TEST_P(WgmmaProduct, IsRecordedInGraphs) {
  for (const bool transposed : {true, false}) {
    const Problem p{200, 320, 136, transposed};
    const Operands o = make(p);
    const Buffer nothing = empty(DType::bf16, {p.M + 2, p.N});
    for (int call = 0; call < 5; ++call) {
      copy(q_, o.a.buffer, random(DType::bf16, {p.M, p.K}));
      copy(q_, o.c.buffer, nothing);
      q_.graph({transposed}, [&] {
        if (q_.device() == Device::cuda) multiply(o);
      });
      EXPECT_LT(worst_error(values(o.c.view), expected(o), p), kRounding) << p << ", call " << call;
    }
  }
}

TEST_P(WgmmaProduct, OperandsMayBeInPinnedHostMemory) {
  constexpr int64_t M = 300, N = 264, K = 136;
  Arena notes;
  for (const Shape& shape : {Shape{M, K}, Shape{N, K}, Shape{M, N}})  // as they are made below
    notes.make(Category::data, DType::bf16, shape, "test");
  Arena host(notes.plan(), Arena::Pinned{});
  Queue q(Device::cuda, arena_, host);
  const auto make_there = [&](const Shape& shape) {
    return host.make(Category::data, DType::bf16, shape, "test");
  };
  const Buffer a = make_there({M, K}), b = make_there({N, K}), c = make_there({M, N});
  const Operands o = make({M, N, K});
  multiply(o);
  const Values expected = values(o.c.view);
  copy(q, a, o.a.buffer);
  copy(q, b, o.b.buffer);
  cuda::Product(c, {*a}, {*b, true}, {}, false, false).multiply(q.cuda(), WgmmaKernel{}, nullptr);
  EXPECT_EQ(values_of(q, c), expected);
}

// Nothing but our kernel runs on the GPU here: racecheck takes long for a library's.
TEST_P(WgmmaProduct, TermsMatchF64) {
  struct Case {
    int64_t M, N, K, R, first, end;
  };
  for (const Case& c : {Case{1, 256, 8, 8, 0, 256},
                        {130, 512, 72, 40, 256, 512},
                        {257, 600, 136, 64, 512, 600},
                        {300, 776, 64, 72, 0, 776},
                        {140, 1024, 200, 136, 256, 768}}) {
    const Problem p{c.M, c.N, c.K};
    const Operands o = make(p);
    const Matrix inner = matrix(c.M, c.R, 8), outer = matrix(c.end - c.first, c.R, 0);
    ThinTerms terms;
    terms.add({inner.view, outer.view, c.first});
    ASSERT_TRUE(cuda::wgmma_product_takes(context(), o.c.view, o.factor_a(), o.factor_b(), terms));
    ASSERT_EQ(cuda::wgmma_product(context(), o.c.view, o.factor_a(), o.factor_b(), terms),
              cudaSuccess);
    Values sums = expected(o);
    const int64_t width = c.end - c.first;
    const Values more =
        product_f64(c.M, width, c.R, values(inner.view), false, values(outer.view), true);
    for (int64_t m = 0; m < c.M; ++m)
      for (int64_t n = 0; n < width; ++n)
        sums[idx(m * c.N + c.first + n)] += more[idx(m * width + n)];
    EXPECT_LT(worst_error(values(o.c.view), sums, p), kRounding) << p << ", R " << c.R;
  }
}

// As the library's products of factors side by side; several rounds of tiles, the last of which is
// cut, or the last band narrower. A result depends on its row and column alone: a view of some
// columns has the same bits.
TEST_P(WgmmaProduct, ManyTilesWithTermsAreAsTheLibraryComputesThem) {
  constexpr int64_t R = 40;
  const Buffer workspace = q_.scratch(DType::u8, {cuda::kGemmWorkspace}, "workspace");
  const auto beside = [&](const Tensor& left, const Tensor& right) {
    const Values a = values(left), b = values(right);
    const int64_t rows = left.dim(0), n = left.dim(1), m = right.dim(1);
    Values both;
    for (int64_t r = 0; r < rows; ++r) {
      both.insert(both.end(), a.begin() + r * n, a.begin() + (r + 1) * n);
      both.insert(both.end(), b.begin() + r * m, b.begin() + (r + 1) * m);
    }
    return of(DType::bf16, {rows, n + m}, both);
  };
  for (const Problem& p : {Problem{2040, 4856, 200}, {2048, 5376, 64}, {300, 40000, 72}}) {
    const Operands o = make(p);
    const Matrix inner = matrix(p.M, 2 * R, 8), outer = matrix(p.N, R, 0);
    ThinTerms terms;
    terms.add({inner.view.cols(0, R), outer.view.rows(0, 1024), 0});
    terms.add({inner.view.cols(R, R), outer.view.rows(2048, p.N - 2048), 2048});
    const Factor a = o.factor_a(), b = o.factor_b();
    ASSERT_TRUE(cuda::wgmma_product_takes(context(), o.c.view, a, b, terms));
    const auto multiply_all = [&] {
      ASSERT_EQ(cuda::wgmma_product(context(), o.c.view, a, b, terms), cudaSuccess);
    };
    multiply_all();
    const Values ours = values(o.c.view);
    for (int run = 0; run < 5; ++run) multiply_all();
    EXPECT_TRUE(values(o.c.view) == ours) << "every run gives the same bits";
    const int64_t first = 512, n = 2304;
    const Factor part = {o.b.view.rows(first, n), true};
    const Matrix some = matrix(p.M, n, 0);
    ASSERT_EQ(cuda::wgmma_product(context(), some.view, a, part, terms.within(first, n)),
              cudaSuccess);
    EXPECT_TRUE(values(some.view) == values(o.c.view.cols(first, n)));
    const auto by_library = [&](const Tensor& to, const Tensor& left, const Tensor& right) {
      const cuda::Product product(to, {left}, {right, true}, {}, false, false);
      product.multiply(context(), product.proposals(context(), 1)[0], bytes_of(workspace));
    };
    by_library(o.c.view.cols(1024, 1024), o.a.view, o.b.view.rows(1024, 1024));
    for (const ThinTerm& t : terms) {
      const int64_t width = t.w_OR.dim(0);
      const Buffer left = beside(o.a.view, t.x_TR);
      const Buffer right = beside(o.b.view.rows(t.first, width), t.w_OR);
      by_library(o.c.view.cols(t.first, width), left, right);
      q_.synchronize();
    }
    // Each of the two is off by as much as rounding explains.
    EXPECT_LT(worst_error(ours, values(o.c.view), p), 2 * kRounding) << p;
  }
}

TEST_P(WgmmaProduct, TakesTermsOfWholeTiles) {
  const Buffer x = random(DType::bf16, {256, 64}), w = random(DType::bf16, {600, 64});
  const Buffer c = empty(DType::bf16, {256, 600}), inner = random(DType::bf16, {256, 16});
  const Buffer outer = random(DType::bf16, {600, 16});
  const auto takes = [&](int64_t first, int64_t end, int64_t inner_columns = 16) {
    ThinTerms terms;
    terms.add({inner->cols(0, inner_columns),
               inner_columns == 16 ? outer->rows(first, end - first)
                                   : random(DType::bf16, {end - first, inner_columns}),
               first});
    return cuda::wgmma_product_takes(context(), c, {*x}, {*w, true}, terms);
  };
  EXPECT_TRUE(takes(0, 600));
  EXPECT_TRUE(takes(256, 512));
  EXPECT_TRUE(takes(512, 600));
  EXPECT_TRUE(takes(0, 600, 8));
  EXPECT_FALSE(takes(0, 100));
  EXPECT_FALSE(takes(128, 600));
  EXPECT_FALSE(takes(0, 600, 12)) << "sums end between packs";
  ThinTerms one;
  one.add({*inner, *outer, 0});
  EXPECT_FALSE(cuda::wgmma_product_takes(context(), c, {*x}, {w->rows(0, 64)}, one));
}

TEST_P(WgmmaProduct, TakesWhatItCanComputeAndNothingElse) {
  const Buffer a = random(DType::bf16, {256, 256}), b = random(DType::bf16, {256, 256});
  const Buffer c = empty(DType::bf16, {256, 256}), bias = random(DType::bf16, {256});
  const Buffer wide = random(DType::f32, {256, 256});
  const auto takes = [&](const Tensor& to, const Factor& x, const Factor& y,
                         const Tensor& plus = {}, bool add = false) {
    return cuda::Product(to, x, y, plus, add, false).takes(context(), WgmmaKernel{});
  };
  EXPECT_TRUE(takes(c, {*a}, {*b}));
  EXPECT_TRUE(takes(c, {*a}, {*b, true}));
  EXPECT_FALSE(takes(c, {*a, true}, {*b}));
  EXPECT_FALSE(takes(c, {*a}, {*b}, bias));
  EXPECT_FALSE(takes(c, {*a}, {*b}, {}, true));
  EXPECT_FALSE(takes(wide, {*a}, {*b})) << "results of another type";
  EXPECT_FALSE(takes(wide, {*wide}, {*wide}));
  EXPECT_TRUE(takes(c->cols(8, 200), {*a}, {b->cols(16, 200)}));
  EXPECT_FALSE(takes(c->cols(4, 200), {*a}, {b->cols(16, 200)})) << "rows begin between packs";
  EXPECT_FALSE(takes(c->cols(0, 200), {*a}, {b->cols(4, 200)}));
  EXPECT_FALSE(takes(c, {a->cols(0, 252)}, {b->rows(0, 252)})) << "sums end between packs";
  EXPECT_FALSE(takes(c->cols(0, 252), {*a}, {b->cols(0, 252)})) << "columns end between packs";
  const Buffer narrow = random(DType::bf16, {256, 252});
  EXPECT_FALSE(takes(c, {narrow->cols(0, 248)}, {b->cols(0, 248), true})) << "the stride";
  context().avoid_wgmma(true);
  EXPECT_FALSE(takes(c, {*a}, {*b}));
}

}  // namespace
}  // namespace capstan::test
#endif
