#include "ops/swiglu.h"

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(SwiGlu);

Values swiglu_f64(const Values& gu, int64_t F) {
  Values y;
  for (size_t row = 0; row < gu.size(); row += idx(2 * F))
    for (size_t i = row; i < row + idx(F); ++i)
      y.push_back(gu[i] / (1 + std::exp(-gu[i])) * gu[i + idx(F)]);
  return y;
}

TEST_P(SwiGlu, MatchesF64) {
  for (const DType y_type : kComputeTypes)
    for (const DType x_type : types_beside({y_type}))
      for (const int64_t T : {1, 33})
        for (const int64_t F : {1, 31, 32, 33, 288}) {
          const Buffer gu = random(x_type, {T, 2 * F}, 3), y = empty(y_type, {T, F});
          swiglu(q_, y, gu);
          EXPECT_LT(error(values(y), swiglu_f64(values(gu), F)), tolerance(y_type))
              << "T=" << T << " F=" << F;
        }
}

// Eight gates and their eights of up: a pack of either type.
TEST_P(SwiGlu, LargeGatesSaturate) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const DType type : kComputeTypes) {
    Values both(16, 1.0);
    const double most = type == DType::f16 ? 0x1p15 : 0x1p100;
    std::ranges::copy(Values{-most, -200, -100, 0, 90, 200, most, kInfinite}, both.begin());
    const Buffer gu = of(type, {1, 16}, both), y = empty(type, {1, 8});
    swiglu(q_, y, gu);
    EXPECT_EQ(values(y), (Values{0, 0, 0, 0, 90, 200, most, kInfinite})) << name_of(type);
    const Buffer dgu = empty(type, {1, 16}), dy = of(type, {1, 8}, Values(8, 1.0));
    swiglu_backward(q_, dgu, dy, gu);
    const Values d_gate = values(dgu->cols(0, 7));  // d of an infinite one is not defined
    EXPECT_EQ(d_gate, (Values{0, 0, 0, 0.5, 1, 1, 1})) << name_of(type);
  }
}

TEST_P(SwiGlu, NanIsNotHidden) {
  for (const DType type : kComputeTypes) {
    const Buffer gu = of(type, {1, 2}, {NAN, 1}), y = zeros(type, {1, 1});
    swiglu(q_, y, gu);
    EXPECT_TRUE(std::isnan(values(y)[0])) << name_of(type);
  }
}

TEST_P(SwiGlu, GradientMatchesFiniteDifferences) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t T : {1, 5})
      for (const int64_t F : {1, 31, 32, 33, 288}) {
        const Buffer gu = random(dtype, {T, 2 * F}, 2), dy = random(dtype, {T, F});
        const Buffer dgu = empty(dtype, {T, 2 * F});
        swiglu_backward(q_, dgu, dy, gu);
        const Values dy64 = values(dy);
        const auto f = [&](const Values& at) { return dot(dy64, swiglu_f64(at, F)); };
        EXPECT_LT(gradient_error(f, values(gu), values(dgu)),
                  4 * tolerance(dtype) + kDifferenceError)
            << name_of(dtype) << " T=" << T << " F=" << F;
        const Values apart = values(dgu);
        swiglu_backward(q_, gu, dy, gu);  // in place
        EXPECT_EQ(values(gu), apart);
      }
}

TEST_P(SwiGlu, TakesEachTypeOnItsOwn) {
  const Buffer dy = random(DType::f32, {3, 33}), gu = random(DType::bf16, {3, 66});
  const Buffer wide = empty(DType::f32, {3, 66}), narrow = empty(DType::bf16, {3, 66});
  swiglu_backward(q_, wide, dy, gu);
  swiglu_backward(q_, narrow, dy, gu);
  EXPECT_LT(error(values(narrow), values(wide)), tolerance(DType::bf16));
}

TEST_P(SwiGlu, DoesNotDependOnTheThreads) {
  const Buffer gu = random(DType::f32, {300, 2 * 129}), y = empty(DType::f32, {300, 129});
  const Buffer dgu = empty(DType::f32, {300, 2 * 129});
  expect_same_for_any_threads([&] {
    swiglu(q_, y, gu);
    swiglu_backward(q_, dgu, y, gu);
    return values(dgu);
  });
}

TEST_P(SwiGlu, RefusesWrongOperands) {
  const Buffer y = empty(DType::f32, {3, 8}), gu = random(DType::f32, {3, 15});
  const Buffer wide = random(DType::f32, {3, 16});
  expect_bug("swiglu", [&] { swiglu(q_, y, gu); });
  expect_bug("swiglu", [&] { swiglu(q_, y->rows(0, 2), wide); });
  expect_bug("swiglu_backward", [&] { swiglu_backward(q_, gu, y, wide); });
}

TEST(SwiGluOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer y = buffer_of(q, DType::bf16, {3, 8}, Values(24));
    const Buffer gu = buffer_of(q, DType::f32, {3, 16}, Values(48));
    swiglu(q, y, gu);
    swiglu_backward(q, gu, y, gu);
  });
}

}  // namespace
}  // namespace capstan::test
