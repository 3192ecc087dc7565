#include <vector>

#include "ops/optimizer.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Clip);

TEST_P(Clip, SumOfSquaresMatchesF64AndAdds) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t n : {1, 31, 33, 288, 4096, 4097, 300001}) {
      const Buffer x = random(dtype, {n}), sum = of(DType::f64, {1}, {10});
      sum_squares(q_, sum, x);
      const Values x64 = values(x);
      EXPECT_NEAR(values(sum)[0], 10 + dot(x64, x64), 1e-12 * double(n)) << "n=" << n;
    }
}

TEST_P(Clip, ManyTensorsAreSummedTogetherAndAlikeEachTime) {
  std::vector<Buffer> buffers;
  std::vector<Tensor> all;
  double expected = 3;
  for (int64_t i = 0; i < 130; ++i) {
    constexpr int64_t kSizes[] = {1, 8, 31, 4096, 65536, 65544, 70001};
    buffers.push_back(random(kComputeTypes[idx(i % 2)], {kSizes[i < 14 ? i % 7 : i % 3]}));
    all.push_back(buffers.back());
    const Values x = values(all.back());
    expected += dot(x, x);
  }
  const auto sum_of = [&] {
    const Buffer sum = of(DType::f64, {1}, {3});
    sum_squares(q_, sum, all);
    return values(sum)[0];
  };
  const double once = sum_of();
  EXPECT_NEAR(once, expected, 1e-12 * expected);
  EXPECT_EQ(sum_of(), once);
  all.clear();
  EXPECT_EQ(sum_of(), 3);
}

// As if the tensors were on two devices.
TEST_P(Clip, PartialSumsAddUpToTheSameBits) {
  std::vector<Buffer> buffers;
  std::vector<Tensor> all;
  int64_t count = 0, first = 0;
  for (const int64_t n : {1, 4096, 70'000, 300'001, 5}) {
    buffers.push_back(random(DType::f32, {n}));
    all.push_back(buffers.back());
    count += square_partials(GetParam(), n);
    if (n <= 4096 && all.size() <= 2) first = count;
  }
  const Buffer expected = of(DType::f64, {1}, {3}), found = of(DType::f64, {1}, {3});
  sum_squares(q_, expected, all);
  const Buffer partials = zeros(DType::f64, {count});
  partial_squares(q_, partials->rows(first, count - first), std::span(all).subspan(2));
  partial_squares(q_, partials->rows(0, first), std::span(all).first(2));
  add_partials(q_, found, partials);
  EXPECT_EQ(values(found), values(expected));
  expect_bug("partial_squares", [&] { partial_squares(q_, found, all); });
}

TEST_P(Clip, SumOfSquaresNeitherOverflowsNorVanishes) {
  for (const double x : {1e30, 1e-30}) {
    const Buffer sum = zeros(DType::f64, {1});
    sum_squares(q_, sum, of(DType::f32, {1}, {x}));
    EXPECT_NEAR(values(sum)[0], x * x, 1e-6 * x * x);
  }
}

TEST_P(Clip, ScaleBringsTheNormToTheLimit) {
  const auto scale_of = [&](double sum, float max_norm) {
    const Buffer scale = empty(DType::f32, {1});
    clip_scale(q_, scale, of(DType::f64, {1}, {sum}), max_norm);
    return values(scale)[0];
  };
  EXPECT_NEAR(scale_of(100, 1), 1 / (10 + 1e-6), 1e-8);
  EXPECT_EQ(scale_of(0.25, 1), 1);  // below the limit
  EXPECT_EQ(scale_of(0, 1), 1);
  EXPECT_EQ(scale_of(4, 0), 0);
  EXPECT_EQ(scale_of(1e300, INFINITY), 1);
  for (const float max_norm : {1.0f, INFINITY}) {
    EXPECT_TRUE(std::isnan(scale_of(NAN, max_norm)));
    EXPECT_TRUE(std::isnan(scale_of(INFINITY, max_norm)));
  }
}

TEST_P(Clip, ALossThatIsNotFiniteGivesNan) {
  const Buffer sum = of(DType::f64, {1}, {0.25});
  for (const double loss : Values{NAN, INFINITY, -INFINITY, 3}) {
    const Buffer scale = empty(DType::f32, {1});
    clip_scale(q_, scale, sum, 1, of(DType::f64, {1}, {loss}));
    const double found = values(scale)[0];
    if (std::isfinite(loss))
      EXPECT_EQ(found, 1);
    else
      EXPECT_TRUE(std::isnan(found)) << loss;
  }
}

TEST_P(Clip, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {8}), one = zeros(DType::f32, {1});
  const Buffer sum = zeros(DType::f64, {1});
  expect_bug("sum_squares", [&] { sum_squares(q_, one, x); });
  expect_bug("sum_squares", [&] { sum_squares(q_, sum, sum); });
  expect_bug("clip_scale", [&] { clip_scale(q_, x, sum, 1); });
  expect_bug("clip_scale", [&] { clip_scale(q_, one, sum, -1); });
  expect_bug("clip_scale", [&] { clip_scale(q_, one, sum, NAN); });
}

TEST(ClipOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer x = buffer_of(q, DType::bf16, {8}, Values(8));
    const Buffer sum = buffer_of(q, DType::f64, {1}, {0}), one = buffer_of(q, DType::f32, {1}, {0});
    const Buffer wide = buffer_of(q, DType::f32, {70000}, Values(70000));
    // A plan uses the place of scratch again in a phase alone.
    const auto phase = q.arena().phase("sums");
    sum_squares(q, sum, x);
    sum_squares(q, sum, std::vector<Tensor>{x, wide});
    clip_scale(q, one, sum, 1);
  });
}

}  // namespace
}  // namespace capstan::test
