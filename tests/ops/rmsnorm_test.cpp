#include "ops/rmsnorm.h"

#include "ops/reference.h"

namespace capstan::test {
namespace {

// Larger than models have it, so that it matters and finite differences near x = 0 are smooth.
constexpr float kEps = 1e-2f;

// Rows of D channels.
Values rstd_f64(const Values& x, int64_t D) {
  Values rstd;
  for (const double* row = x.data(); row != x.data() + x.size(); row += D)
    rstd.push_back(1 / std::sqrt(dot(row, row, D) / double(D) + kEps));
  return rstd;
}

Values rmsnorm_f64(const Values& x, const Values& w) {
  const size_t D = w.size();
  const Values rstd = rstd_f64(x, static_cast<int64_t>(D));
  Values y(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= w[i % D] * rstd[i / D];
  return y;
}

CAPSTAN_ON_EVERY_DEVICE(RmsNorm);

TEST_P(RmsNorm, MatchesF64) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {1, 33})
      for (const int64_t D :
           {1, 31, 32, 33, 40, 64, 128, 264, 288, 1032, 2048, 4096, 8200, 16392}) {
        const Buffer x = random(dtype, {T, D}, 3), w = random(DType::f32, {D});
        const Buffer y = empty(dtype, {T, D}), rstd = empty(DType::f32, {T});
        rmsnorm(q_, y, rstd, x, w, kEps);
        EXPECT_LT(error(values(y), rmsnorm_f64(values(x), values(w))), tolerance(dtype, D))
            << name_of(dtype) << " T=" << T << " D=" << D;
        EXPECT_LT(error(values(rstd), rstd_f64(values(x), D)), tolerance(DType::f32, D));
      }
}

TEST_P(RmsNorm, TakesEachTypeOnItsOwn) {
  for (const DType y_type : kComputeTypes)
    for (const DType x_type : types_beside({y_type}))
      for (const DType w_type : types_beside({y_type, x_type})) {
        const Buffer x = random(x_type, {5, 33}), w = random(w_type, {33});
        const Buffer y = empty(y_type, {5, 33});
        rmsnorm(q_, y, {}, x, w, kEps);
        EXPECT_LT(error(values(y), rmsnorm_f64(values(x), values(w))), tolerance(y_type, 33));
      }
}

// Views that begin at multiples of 16 bytes, and others.
TEST_P(RmsNorm, NormsEachHeadOfAStridedViewInPlace) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {20, 64, 80, 128, 256})
      for (const int64_t begin : {D, int64_t{4}, int64_t{1}}) {
        const int64_t T = 9, H = 3;
        const Buffer qkv = random(dtype, {T, 2 * H * D}), w = random(dtype, {D});
        const Tensor x = qkv->cols(begin, H * D).heads(H), before = qkv->cols(0, begin);
        const Tensor after = qkv->cols(begin + H * D, H * D - begin);
        const Buffer rstd = empty(DType::f32, {T, H});
        const Values x_old = values(x), before_old = values(before), after_old = values(after);
        rmsnorm(q_, x, rstd, x, w, kEps);
        EXPECT_LT(error(values(x), rmsnorm_f64(x_old, values(w))), tolerance(dtype, D))
            << name_of(dtype) << " D=" << D << " from " << begin;
        EXPECT_LT(error(values(rstd), rstd_f64(x_old, D)), tolerance(DType::f32, D));
        EXPECT_EQ(values(before), before_old) << "wrote outside of the view";
        EXPECT_EQ(values(after), after_old) << "wrote outside of the view";
      }
}

TEST_P(RmsNorm, GradientsOfAStridedViewAreThoseOfACopy) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {20, 64, 128}) {
      const int64_t T = 130, H = 3;
      const Buffer qkv = random(dtype, {T, 2 * H * D}), w = random(dtype, {D});
      const Tensor x = qkv->cols(D, H * D).heads(H), before = qkv->cols(0, D);
      const Buffer dy = random(dtype, {T, H, D}), copy = of(dtype, {T, H, D}, values(x));
      const Buffer rstd = empty(DType::f32, {T, H}), dx = empty(dtype, {T, H, D});
      const Buffer dw = zeros(DType::f32, {D}), dw2 = zeros(DType::f32, {D});
      const Values before_old = values(before);
      rmsnorm(q_, dx, rstd, x, w, kEps);
      rmsnorm_backward(q_, dx, dw, dy, copy, w, rstd, Write::replace);
      rmsnorm_backward(q_, x, dw2, dy, x, w, rstd, Write::replace);
      EXPECT_EQ(values(x), values(dx)) << name_of(dtype) << " D=" << D;
      EXPECT_EQ(values(dw2), values(dw)) << name_of(dtype) << " D=" << D;
      EXPECT_EQ(values(before), before_old) << "wrote outside of the view";
    }
}

TEST_P(RmsNorm, AddsTheResidualAndNormsTheSumAsStored) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {1, 33, 64, 288, 520, 2048, 4104}) {
      const int64_t T = 7;
      const Buffer x = random(dtype, {T, D}), residual = random(dtype, {T, D});
      const Buffer w = random(dtype, {D}), y = empty(dtype, {T, D}), rstd = empty(DType::f32, {T});
      Values sum = values(x);
      const Values r = values(residual);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += r[i];
      add_rmsnorm(q_, y, residual, rstd, x, residual, w, kEps);  // the sum replaces the residual
      const Values stored = values(residual);
      EXPECT_LT(error(stored, sum), tolerance(dtype));
      EXPECT_LT(error(values(y), rmsnorm_f64(stored, values(w))), tolerance(dtype, D));
      EXPECT_LT(error(values(rstd), rstd_f64(stored, D)), tolerance(DType::f32, D));
    }
}

TEST_P(RmsNorm, TheSumMayReplaceX) {
  const Buffer x = random(DType::bf16, {5, 32}), r = random(DType::f32, {5, 32});
  const Buffer w = random(DType::f32, {32}), y1 = empty(DType::f32, {5, 32});
  const Buffer y2 = empty(DType::f32, {5, 32}), sum = empty(DType::bf16, {5, 32});
  add_rmsnorm(q_, y1, sum, {}, x, r, w, kEps);
  add_rmsnorm(q_, y2, x, {}, x, r, w, kEps);
  EXPECT_EQ(values(x), values(sum));
  EXPECT_EQ(values(y1), values(y2));
}

class RmsNormGradients : public OnEveryDevice {
 protected:
  void expect_gradients_match(DType dtype, int64_t T, int64_t D) {
    const Buffer x = random(dtype, {T, D}), w = random(dtype, {D}), dy = random(dtype, {T, D});
    const Buffer y = empty(dtype, {T, D}), rstd = empty(DType::f32, {T});
    const Buffer dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {D});
    rmsnorm(q_, y, rstd, x, w, kEps);
    rmsnorm_backward(q_, dx, dw, dy, x, w, rstd, Write::replace);
    const Values x64 = values(x), w64 = values(w), dy64 = values(dy);
    const auto of_x = [&](const Values& at) { return dot(dy64, rmsnorm_f64(at, w64)); };
    const auto of_w = [&](const Values& at) { return dot(dy64, rmsnorm_f64(x64, at)); };
    // dx is a difference of two terms, much smaller than they are when D is small.
    const Values rstd64 = rstd_f64(x64, D);
    Values term(dy64);
    for (size_t i = 0; i < term.size(); ++i) term[i] *= w64[i % w64.size()] * rstd64[i / idx(D)];
    const double lost = norm(term) / norm(values(dx)) * tolerance(DType::f32, D);
    EXPECT_LT(gradient_error(of_x, x64, values(dx)),
              4 * (tolerance(dtype, D) + lost) + kDifferenceError)
        << name_of(dtype) << " T=" << T << " D=" << D;
    EXPECT_LT(gradient_error(of_w, w64, values(dw)),
              4 * tolerance(DType::f32, T) + kDifferenceError)
        << name_of(dtype) << " T=" << T << " D=" << D;
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, RmsNormGradients, testing::ValuesIn(devices_present()), device_name);

TEST_P(RmsNormGradients, MatchFiniteDifferences) {
  for (const DType dtype : kComputeTypes) {
    for (const int64_t T : {1, 8, 9, 600})
      for (const int64_t D : {1, 31, 32, 33, 64, 128, 288}) expect_gradients_match(dtype, T, D);
    for (const int64_t D : {520, 1032, 2048, 4104, 8192, 8200}) expect_gradients_match(dtype, 9, D);
    expect_gradients_match(dtype, 4000, 40);  // more rows than sums
  }
}

// Beside the formulas themselves, which are exact where differences are not. 12288 is where sums
// for dw fill the shared memory that a GPU's block may have without asking.
TEST_P(RmsNorm, GradientsOfLongRowsMatchF64) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t D : {12280, 12288, 12296}) {
      const int64_t T = 5;
      const Buffer x = random(dtype, {T, D}), w = random(dtype, {D}), dy = random(dtype, {T, D});
      const Buffer y = empty(dtype, {T, D}), rstd = empty(DType::f32, {T});
      const Buffer dx = empty(dtype, {T, D}), dw = zeros(DType::f32, {D});
      rmsnorm(q_, y, rstd, x, w, kEps);
      rmsnorm_backward(q_, dx, dw, dy, x, w, rstd, Write::replace);
      const Values x64 = values(x), w64 = values(w), dy64 = values(dy), r64 = rstd_f64(x64, D);
      Values dx64(x64.size()), dw64(w64.size());
      for (size_t t = 0; t < idx(T); ++t) {
        double along = 0;
        for (size_t d = 0; d < idx(D); ++d)
          along += dy64[t * idx(D) + d] * w64[d] * x64[t * idx(D) + d];
        along *= r64[t] * r64[t] / static_cast<double>(D);
        for (size_t d = 0; d < idx(D); ++d) {
          const size_t i = t * idx(D) + d;
          dx64[i] = r64[t] * (dy64[i] * w64[d] - along * x64[i]);
          dw64[d] += dy64[i] * x64[i] * r64[t];
        }
      }
      EXPECT_LT(error(values(dx), dx64), tolerance(dtype, D)) << name_of(dtype) << " D=" << D;
      EXPECT_LT(error(values(dw), dw64), tolerance(DType::f32, T + D)) << " D=" << D;
    }
}

const std::vector<std::pair<DType, int64_t>> kTypesAndWidths = {
    {DType::f32, 33},  {DType::f32, 40},  {DType::f32, 1032},
    {DType::bf16, 33}, {DType::bf16, 40}, {DType::bf16, 1032}};

TEST_P(RmsNorm, GradientsAreAddedWhereAsked) {
  for (const auto& [dtype, D] : kTypesAndWidths) {
    const Shape shape{7, 2, D};
    const Buffer x = random(dtype, shape), w = random(dtype, {D}), dy = random(dtype, shape);
    const Buffer y = empty(dtype, shape), rstd = empty(DType::f32, {7, 2});
    rmsnorm(q_, y, rstd, x, w, kEps);
    const Buffer dx = empty(DType::f32, shape), dw = zeros(DType::f32, {D});
    rmsnorm_backward(q_, dx, dw, dy, x, w, rstd, Write::replace);
    const Buffer dx2 = random(dtype, shape), dw2 = random(dtype, {D});
    Values dx_sum = values(dx2), dw_sum = values(dw2);
    const Values dx1 = values(dx), dw1 = values(dw);
    for (size_t i = 0; i < dx_sum.size(); ++i) dx_sum[i] += dx1[i];
    for (size_t i = 0; i < dw_sum.size(); ++i) dw_sum[i] += dw1[i];
    rmsnorm_backward(q_, dx2, dw2, dy, x, w, rstd, Write::add);
    EXPECT_LT(error(values(dx2), dx_sum), tolerance(dtype));
    EXPECT_LT(error(values(dw2), dw_sum), tolerance(dtype));
  }
}

TEST_P(RmsNorm, BackwardMayOverwriteItsInput) {
  for (const auto& [dtype, D] : kTypesAndWidths) {
    const Buffer x = random(dtype, {40, D}), w = random(dtype, {D}), dy = random(dtype, {40, D});
    const Buffer y = empty(dtype, {40, D}), rstd = empty(DType::f32, {40});
    rmsnorm(q_, y, rstd, x, w, kEps);
    const Buffer dx = empty(dtype, {40, D}), dw = zeros(DType::f32, {D});
    const Buffer dw2 = zeros(DType::f32, {D}), none = empty(dtype, {40, D});
    rmsnorm_backward(q_, dx, dw, dy, x, w, rstd, Write::replace);
    rmsnorm_backward(q_, none, {}, dy, x, w, rstd, Write::replace);  // a frozen weight
    const Buffer x2 = of(dtype, {40, D}, values(x)), dw3 = zeros(DType::f32, {D});
    rmsnorm_backward(q_, x2, dw3, dy, x2, w, rstd, Write::replace);
    rmsnorm_backward(q_, dy, dw2, dy, x, w, rstd, Write::replace);
    EXPECT_EQ(values(dy), values(dx));
    EXPECT_EQ(values(x2), values(dx));
    EXPECT_EQ(values(dw3), values(dw));
    EXPECT_EQ(values(none), values(dx));
    EXPECT_EQ(values(dw2), values(dw));
  }
}

TEST_P(RmsNorm, DoesNotDependOnTheThreads) {
  const int64_t T = 500, D = 129;
  const Buffer x = random(DType::f32, {T, D}), w = random(DType::f32, {D});
  const Buffer y = empty(DType::f32, {T, D}), rstd = empty(DType::f32, {T});
  expect_same_for_any_threads([&] {
    const Buffer dw = zeros(DType::f32, {D});
    rmsnorm(q_, y, rstd, x, w, kEps);
    rmsnorm_backward(q_, y, dw, y, x, w, rstd, Write::replace);
    Values all = values(y);
    const Values more = values(dw);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  });
}

TEST_P(RmsNorm, NothingToDo) {
  const Buffer x = empty(DType::f32, {0, 8}), w = random(DType::f32, {8}),
               dw = random(DType::f32, {8});
  const Buffer rstd = empty(DType::f32, {0});
  const Values before = values(dw);
  rmsnorm(q_, x, rstd, x, w, kEps);
  rmsnorm_backward(q_, x, dw, x, x, w, rstd, Write::replace);
  EXPECT_EQ(values(dw), before);
}

TEST_P(RmsNorm, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {4, 8}), w = random(DType::f32, {7}),
               w8 = random(DType::f32, {8});
  const Buffer rstd = empty(DType::f32, {5}), ids = empty(DType::i32, {4, 8});
  expect_bug("rmsnorm", [&] { rmsnorm(q_, x, {}, x, w, kEps); });
  expect_bug("rmsnorm", [&] { rmsnorm(q_, x, rstd, x, w8, kEps); });
  expect_bug("rmsnorm", [&] { rmsnorm(q_, ids, {}, x, w8, kEps); });
  expect_bug("add_rmsnorm", [&] { add_rmsnorm(q_, x, x, {}, x, w8, w8, kEps); });
  expect_bug("rmsnorm_backward", [&] { rmsnorm_backward(q_, x, w, x, x, w8, rstd, Write::add); });
  expect_bug("rmsnorm_backward", [&] { rmsnorm_backward(q_, x, w8, x, x, w8, {}, Write::add); });
}

TEST(RmsNormOnSim, CostsAndScratchAgree) {
  expect_same_on_sim([](Queue& q) {
    const auto make = [&](const Shape& s) { return buffer_of(q, DType::f32, s, Values(1000)); };
    const Buffer x = make({20, 4, 8}), w = make({8}), rstd = make({20, 4}), x2 = make({20, 8});
    rmsnorm(q, x, rstd, x, w, kEps);
    add_rmsnorm(q, x2, x2, {}, x2, x2, w, kEps);
    rmsnorm_backward(q, x, w, x, x, w, rstd, Write::add);
    rmsnorm_backward(q, x, {}, x, x, w, rstd, Write::replace);
  });
}

}  // namespace
}  // namespace capstan::test
