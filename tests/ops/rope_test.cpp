#include "ops/rope.h"

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Rope);

// Each pair (i, i + D/2) as a complex number, rotated by its angle.
Values rope_f64(const Values& x, int64_t H, int64_t D, const Values& cos, const Values& sin,
                const Values& positions, double direction) {
  Values y(x);
  const int64_t half = D / 2, T = static_cast<int64_t>(positions.size());
  for (int64_t t = 0; t < T; ++t)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const size_t low = idx((t * H + h) * D + i), high = low + idx(half);
        const size_t angle = idx(int64_t(positions[idx(t)]) * half + i);
        const double c = cos[angle], s = direction * sin[angle];
        y[low] = x[low] * c - x[high] * s;
        y[high] = x[high] * c + x[low] * s;
      }
  return y;
}

struct Angles {
  Values cos, sin;
};
Angles some_angles(int64_t P, int64_t half) {
  Angles a;
  for (int64_t i = 0; i < P * half; ++i) {
    a.cos.push_back(std::cos(0.1 * double(i)));
    a.sin.push_back(std::sin(0.1 * double(i)));
  }
  return a;
}

const Values kPositions = {0, 1, 2, 0, 1, 6, 3};  // two documents and a jump
constexpr int64_t kT = 7, kP = 8;

TEST_P(Rope, MatchesF64AndTurnsBack) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t H : {1, 3})
      for (const int64_t D : {2, 6, 32, 64, 66, 100}) {
        const Angles angles = some_angles(kP, D / 2);
        const Buffer x = random(dtype, {kT, H, D}), positions = of(DType::i32, {kT}, kPositions);
        const Buffer cos = of(DType::f32, {kP, D / 2}, angles.cos);
        const Buffer sin = of(DType::f32, {kP, D / 2}, angles.sin);
        const Values before = values(x);
        rope(q_, x, cos, sin, positions, Rotation::forward);
        const Values rotated = rope_f64(before, H, D, values(cos), values(sin), kPositions, 1);
        EXPECT_LT(error(values(x), rotated), tolerance(dtype)) << "H=" << H << " D=" << D;
        rope(q_, x, cos, sin, positions, Rotation::back);
        EXPECT_LT(error(values(x), before), 2 * tolerance(dtype)) << "H=" << H << " D=" << D;
      }
}

TEST_P(Rope, TurningBackIsTheGradient) {
  const int64_t H = 2, D = 10;
  const Angles angles = some_angles(kP, D / 2);
  const Buffer x = random(DType::f32, {kT, H, D}), dy = random(DType::f32, {kT, H, D});
  const Buffer cos = of(DType::f32, {kP, D / 2}, angles.cos);
  const Buffer sin = of(DType::f32, {kP, D / 2}, angles.sin);
  const Values dy64 = values(dy), cos64 = values(cos), sin64 = values(sin);
  rope(q_, dy, cos, sin, of(DType::i32, {kT}, kPositions), Rotation::back);
  const auto f = [&](const Values& at) {
    return dot(dy64, rope_f64(at, H, D, cos64, sin64, kPositions, 1));
  };
  EXPECT_LT(gradient_error(f, values(x), values(dy)), 4 * tolerance(DType::f32) + kDifferenceError);
}

TEST_P(Rope, TurnsAViewAndNothingBesideIt) {
  const int64_t H = 2, D = 6;
  const Angles angles = some_angles(kP, D / 2);
  const Buffer qkv = random(DType::bf16, {kT, 4 * H * D});
  const Buffer cos = of(DType::f32, {kP, D / 2}, angles.cos);
  const Buffer sin = of(DType::f32, {kP, D / 2}, angles.sin);
  const Tensor k = qkv->cols(H * D, H * D).heads(H);
  const Tensor left = qkv->cols(0, H * D), right = qkv->cols(2 * H * D, 2 * H * D);
  const Values k_old = values(k), left_old = values(left), right_old = values(right);
  rope(q_, k, cos, sin, of(DType::i32, {kT}, kPositions), Rotation::forward);
  EXPECT_LT(error(values(k), rope_f64(k_old, H, D, values(cos), values(sin), kPositions, 1)),
            tolerance(DType::bf16));
  EXPECT_EQ(values(left), left_old);
  EXPECT_EQ(values(right), right_old);
}

TEST_P(Rope, DoesNotDependOnTheThreads) {
  const int64_t T = 400, H = 3, D = 34;
  const Angles angles = some_angles(T, D / 2);
  const Buffer cos = of(DType::f32, {T, D / 2}, angles.cos);
  const Buffer sin = of(DType::f32, {T, D / 2}, angles.sin);
  Values positions(idx(T));
  std::iota(positions.begin(), positions.end(), 0);
  const Buffer ids = of(DType::i32, {T}, positions);
  expect_same_for_any_threads([&] {
    const Buffer x = of(DType::f32, {T, H, D}, normal_values(T * H * D, 5));
    rope(q_, x, cos, sin, ids, Rotation::forward);
    return values(x);
  });
}

TEST_P(Rope, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {3, 2, 8}), odd = random(DType::f32, {3, 2, 7});
  const Buffer table = random(DType::f32, {5, 4}), narrow = random(DType::bf16, {5, 4});
  const Buffer positions = of(DType::i32, {3}, {0, 1, 2}), two = of(DType::i32, {2}, {0, 1});
  expect_bug("rope", [&] { rope(q_, odd, table, table, positions, Rotation::forward); });
  expect_bug("rope", [&] { rope(q_, x, table, narrow, positions, Rotation::forward); });
  expect_bug("rope", [&] { rope(q_, x, table, table, two, Rotation::forward); });
  expect_bug("rope", [&] { rope(q_, x, x, table, positions, Rotation::forward); });
}

TEST(RopeOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer x = buffer_of(q, DType::bf16, {3, 2, 8}, Values(48));
    const Buffer table = buffer_of(q, DType::f32, {5, 4}, Values(20));
    rope(q, x, table, table, buffer_of(q, DType::i32, {3}, {0, 1, 2}), Rotation::back);
  });
}

}  // namespace
}  // namespace capstan::test
