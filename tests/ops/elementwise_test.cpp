#include "ops/elementwise.h"

#include "ops/rmsnorm.h"

#include <numeric>
#include <vector>

#include "ops/keep.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

const std::vector<DType> kStoredTypes = {DType::f32, DType::bf16, DType::f16};
constexpr RngKey kKey{.seed = 7, .step = 3, .sample = 1, .site = 11};

CAPSTAN_ON_EVERY_DEVICE(Elementwise);

TEST_P(Elementwise, FillWritesEveryValue) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const int64_t n : {1, 31, 33, 288, 40000}) {
      const Buffer y = empty(dtype, {n});
      fill(q_, y, -1.5f);
      EXPECT_EQ(values(y), Values(idx(n), -1.5)) << name_of(dtype) << " n=" << n;
    }
}

TEST_P(Elementwise, CastRoundsToNearest) {
  for (const DType to : kStoredTypes)
    for (const DType from : kStoredTypes)
      for (const int64_t n : {1, 31, 33, 288, 40000}) {
        const Buffer x = random(from, {n}), y = empty(to, {n});
        cast(q_, y, x);
        // What the host rounds to is what the op must give, bit for bit.
        EXPECT_EQ(values(y), values(of(to, {n}, values(x)))) << name_of(from) << name_of(to);
      }
}

TEST_P(Elementwise, CastKeepsSpecialValues) {
  const Buffer x = of(DType::f32, {5}, {INFINITY, -INFINITY, -0.0, 0x1p-24, NAN});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Buffer y = empty(dtype, {5});
    cast(q_, y, x);
    const Values found = values(y);
    EXPECT_EQ(found[0], INFINITY);
    EXPECT_EQ(found[1], -INFINITY);
    EXPECT_TRUE(found[2] == 0 && std::signbit(found[2]));
    EXPECT_EQ(found[3], 0x1p-24);  // subnormal in f16
    EXPECT_TRUE(std::isnan(found[4]));
  }
}

TEST_P(Elementwise, FillNormalHasTheMomentsOfANormal) {
  const int64_t n = 200000;
  const double std = 0.02;
  const Buffer y = empty(DType::f32, {n});
  fill_normal(q_, y, static_cast<float>(std), kKey);
  double mean = 0, square = 0, fourth = 0, neighbours = 0, beyond = 0, before = 0;
  for (const double raw : values(y)) {
    const double z = raw / std;
    mean += z / n;
    square += z * z / n;
    fourth += z * z * z * z / n;
    neighbours += z * before / n;
    beyond += std::abs(z) > 2 ? 1.0 / n : 0;
    before = z;
  }
  // The spread of each estimate is sqrt(its variance / n); five of them is never seen by chance.
  const double spread = 5 / std::sqrt(double(n));
  EXPECT_NEAR(mean, 0, spread);
  EXPECT_NEAR(square, 1, std::sqrt(2) * spread);
  EXPECT_NEAR(fourth, 3, std::sqrt(96) * spread);
  EXPECT_NEAR(neighbours, 0, spread);
  EXPECT_NEAR(beyond, 0.0455, 0.21 * spread);
}

TEST_P(Elementwise, ASliceIsInitialisedAsTheWhole) {
  for (const DType dtype : kStoredTypes) {
    const Buffer whole = empty(dtype, {5000});
    fill_normal(q_, whole, 1, kKey);
    const Values all = values(whole);
    for (const int64_t first : {0, 1, 2, 3, 1023, 1024, 2047, 4990})
      for (const int64_t n : {1, 2, 10}) {
        const Buffer slice = empty(dtype, {n});
        fill_normal(q_, slice, 1, kKey, first);
        EXPECT_EQ(values(slice), Values(all.begin() + first, all.begin() + first + n)) << first;
      }
  }
}

TEST_P(Elementwise, OtherKeysGiveOtherNormals) {
  const Buffer a = empty(DType::f32, {100}), b = empty(DType::f32, {100});
  fill_normal(q_, a, 1, kKey);
  fill_normal(q_, b, 1, {.seed = 7, .step = 3, .sample = 1, .site = 12});
  EXPECT_GT(error(values(a), values(b)), 0.5);
}

TEST_P(Elementwise, DropoutKeepsTheShareAndTheMean) {
  const int64_t n = 100000;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const Buffer x = of(DType::f32, {1, n}, Values(idx(n), 1.0)), y = empty(DType::f32, {1, n});
    dropout(q_, y, x, {p, kKey});
    int64_t kept = 0;
    for (const double v : values(y)) {
      EXPECT_TRUE(v == 0 || v == double{Keep(p).factor}) << v;
      kept += v != 0;
    }
    const double spread = std::sqrt(double(n) * p * (1 - p));
    EXPECT_NEAR(double(kept), double(n) * (1 - p), 5 * spread) << "p=" << p;
  }
}

TEST_P(Elementwise, DropoutDropsWhatTheKeyAndTheIndexSay) {
  const Rng rng(kKey);
  for (const DType dtype : kComputeTypes)
    for (const int64_t n : {1, 3, 31, 33, 1025, 5000}) {
      const Buffer x = random(dtype, {1, n}), y = empty(dtype, {1, n});
      dropout(q_, y, x, {0.25f, kKey});
      Values expected = values(x);
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = rng.half(i) >= 0x4000 ? expected[i] / 0.75 : 0;
      EXPECT_LT(error(values(y), expected), tolerance(dtype)) << "n=" << n;
      const Values apart = values(y);
      dropout(q_, x, x, {0.25f, kKey});  // in place
      EXPECT_EQ(values(x), apart);
    }
}

// Wide and narrow kernels; every bit of the key counts.
TEST_P(Elementwise, DropoutReadsItsKeyOnTheDevice) {
  const RngKey known{.seed = 7ull << 40 | 1, .step = 3ull << 33 | 5, .site = 11};
  const uint64_t words[] = {known.seed, known.step};
  const Buffer key = empty(DType::i32, {RandomKey::kWords});
  q_.upload(key, words);
  for (const DType dtype : kComputeTypes)
    for (const int64_t n : {1, 33, 5000, 400000}) {
      const Buffer x = random(dtype, {1, n}), y = empty(dtype, {1, n}),
                   expected = empty(dtype, {1, n});
      dropout(q_, expected, x, {0.25f, known});
      dropout(q_, y, x, {0.25f, {*key, known.site}});
      EXPECT_EQ(values(y), values(expected)) << "n=" << n;
    }
}

// A token's mask depends on its ordinal and on the column in the whole activation: whatever tokens
// and columns are there, each has its values of the whole mask. Widths that a draw divides and odd
// ones, ordinals in any order and in runs.
TEST_P(Elementwise, DropoutFollowsTokensAndColumns) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t width : {5, 24, 40}) {
      const int64_t T = 50;
      const Buffer x = random(dtype, {T, width}), whole = empty(dtype, {T, width});
      dropout(q_, whole, x, {0.25f, kKey});
      const Values expected = values(whole), from = values(x);
      std::vector<int32_t> order;
      for (const int32_t t : {7, 8, 9, 10, 3, 49, 0, 1, 2, 48, 3}) order.push_back(t);
      const auto n = static_cast<int64_t>(order.size());
      const Buffer ordinals = empty(DType::i32, {n});
      q_.upload(ordinals, order.data());
      for (const auto& [first, count] :
           {std::pair{int64_t{0}, width}, {width / 8 * 4, width / 2}}) {
        const auto part_of = [&](const Values& all) {
          Values part;
          for (const int32_t t : order)
            for (int64_t c = first; c < first + count; ++c) part.push_back(all[idx(t * width + c)]);
          return part;
        };
        const Buffer part = of(dtype, {n, count}, part_of(from)), y = empty(dtype, {n, count});
        dropout(q_, y, part,
                {.p = 0.25f,
                 .key = kKey,
                 .ordinals_T = ordinals,
                 .columns = width,
                 .first_column = first});
        EXPECT_EQ(values(y), part_of(expected)) << "width " << width << " from " << first;
      }
    }
}

TEST_P(Elementwise, DropoutCanAdd) {
  for (const DType dtype : kComputeTypes) {
    const Buffer x = random(dtype, {3, 500}), y = random(dtype, {3, 500});
    const Buffer alone = empty(dtype, {3, 500});
    Values expected = values(y);
    dropout(q_, alone, x, {0.25f, kKey});
    const Values added = values(alone);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];
    dropout(q_, y, x, {0.25f, kKey}, Write::add);
    EXPECT_LT(error(values(y), expected), 2 * tolerance(dtype));
  }
}

TEST_P(Elementwise, FillUniformIsUniformWithinItsBound) {
  const int64_t n = 200000;
  const Buffer y = empty(DType::f32, {n});
  fill_uniform(q_, y, 0.5f, kKey);
  double mean = 0, square = 0, most = 0;
  for (const double v : values(y)) {
    mean += v / n;
    square += v * v / n;
    most = std::max(most, std::abs(v));
  }
  const double spread = 5 / std::sqrt(double(n));
  EXPECT_NEAR(mean, 0, spread * 0.5 / std::sqrt(3));
  EXPECT_NEAR(square, 0.25 / 3, spread * 0.25 * std::sqrt(4.0 / 45));
  EXPECT_LE(most, 0.5);
  EXPECT_GT(most, 0.4999);
  const Buffer slice = empty(DType::f32, {10});
  fill_uniform(q_, slice, 0.5f, kKey, 1500);
  EXPECT_EQ(values(slice), values(y->rows(1500, 10)));
}

TEST_P(Elementwise, ZerosFillManyTensorsAndNothingBesideThem) {
  std::vector<Buffer> buffers;
  std::vector<Tensor> all;
  for (int64_t i = 0; i < 250; ++i) {
    constexpr int64_t kSizes[] = {1, 3, 33, 4096, 40001};
    // From the first value or from the second, where wide accesses would be torn.
    const int64_t n = kSizes[i % 5], first = i % 3 == 0 ? 0 : 1;
    buffers.push_back(of(i % 2 == 0 ? DType::f32 : DType::bf16, {n + 2}, Values(idx(n + 2), 1.0)));
    all.push_back(buffers.back()->rows(first, n));
  }
  fill_zeros(q_, all);
  for (size_t i = 0; i < all.size(); ++i) {
    const Values found = values(buffers[i]);
    const double left = std::accumulate(found.begin(), found.end(), 0.0);
    EXPECT_EQ(left, 2) << i;
    EXPECT_EQ(values(all[i]), Values(idx(all[i].numel()), 0.0)) << i;
  }
}

TEST_P(Elementwise, AddGivesTheSumThatTheFusedNormStores) {
  for (const DType type : kComputeTypes)
    for (const int64_t width : {1, 31, 256, 333}) {
      const Shape shape{5, width};
      const Buffer a = random(type, shape), b = random(type, shape), y = empty(type, shape);
      const Buffer norm = empty(type, shape), sum = empty(type, shape), w = random(type, {width});
      add(q_, y, a, b);
      add_rmsnorm(q_, norm, sum, {}, a, b, w, 1e-5f);
      EXPECT_EQ(values(y), values(sum)) << width;
      Values expected = values(a);
      const Values other = values(b);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += other[i];
      EXPECT_LT(error(values(y), expected), tolerance(type)) << width;
      add(q_, a, a, b);
      EXPECT_EQ(values(a), values(y)) << "in place";
    }
}

TEST_P(Elementwise, ScaleMultiplies) {
  for (const DType to : kComputeTypes)
    for (const DType from : types_beside({to})) {
      const Buffer x = random(from, {3, 333}), y = empty(to, {3, 333});
      scale(q_, y, x, 1.7f);
      Values expected = values(x);
      for (double& v : expected) v *= double{1.7f};
      EXPECT_LT(error(values(y), expected), tolerance(to));
    }
}

TEST_P(Elementwise, NoDropoutIsACopy) {
  const Buffer x = random(DType::f32, {3, 111}), y = empty(DType::f32, {3, 111});
  dropout(q_, y, x, {0, kKey});
  EXPECT_EQ(values(y), values(x));
}

TEST_P(Elementwise, DoesNotDependOnTheThreads) {
  const Buffer x = empty(DType::f32, {7, 7143});
  expect_same_for_any_threads([&] {
    fill_normal(q_, x, 1, kKey, 3);
    dropout(q_, x, x, {0.3f, kKey});
    return values(x);
  });
}

TEST_P(Elementwise, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {3, 4}), y = empty(DType::f32, {4, 3});
  const Buffer ids = empty(DType::i32, {3, 4});
  expect_bug("fill", [&] { fill(q_, ids, 0); });
  expect_bug("fill", [&] { fill(q_, x->cols(0, 2), 0); });
  expect_bug("cast", [&] { cast(q_, y, x); });
  expect_bug("cast", [&] { cast(q_, ids, x); });
  expect_bug("fill_normal", [&] { fill_normal(q_, x, 1, kKey, -1); });
  expect_bug("fill_uniform", [&] { fill_uniform(q_, x, 1, kKey, -1); });
  expect_bug("scale", [&] { scale(q_, y, x, 1); });
  expect_bug("dropout", [&] { dropout(q_, x, x, {1, kKey}); });
  expect_bug("dropout", [&] { dropout(q_, y, x, {0.5f, kKey}); });
  expect_bug("dropout", [&] { dropout(q_, x, x, {0.5f, {*ids, 1}}); });
  expect_bug("dropout", [&] { dropout(q_, x, x, {0.5f, kKey, *ids}); });
  expect_bug("dropout", [&] { dropout(q_, x, x, {0.5f, kKey, {}, 3}); });
  expect_bug("dropout", [&] { dropout(q_, x, x, {0.5f, kKey, {}, 4, 1}); });
}

TEST(ElementwiseOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer x = buffer_of(q, DType::bf16, {30}, Values(30));
    const Buffer y = buffer_of(q, DType::f32, {30}, Values(30));
    fill(q, x, 1);
    cast(q, y, x);
    fill_normal(q, y, 1, kKey);
    fill_uniform(q, y, 1, kKey);
    scale(q, y, x, 2);
    dropout(q, y->reshape({5, 6}), x->reshape({5, 6}), {0.5f, kKey});
  });
}

}  // namespace
}  // namespace capstan::test
