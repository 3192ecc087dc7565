#include "ops/stochastic_rounding.h"

#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "ops/elementwise.h"
#include "ops/optimizer.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(StochasticRounding);

constexpr float kStep = 0x1p-7f;  // between bf16 values from 1 to 2

Rng draws(uint64_t step = 1) {
  return Rng({.seed = 9, .step = step, .site = site::rounding});
}

// What the contract says of value i.
double rounded(const Rng& rng, size_t i, double exact) {
  const auto value = static_cast<float>(exact);
  EXPECT_EQ(double{value}, exact) << "the test's own arithmetic is not exact";
  const uint32_t draw = rng.word(i / 2) >> 16 * (i % 2) & 0xffff;
  return double{std::bit_cast<float>((std::bit_cast<uint32_t>(value) + draw) & 0xffff0000u)};
}

TEST(StochasticBf16, LeavesWhatIsExactAndWhatIsNotFinite) {
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, 1.5f, 0x1p-133f, 3.3895314e38f, INFINITY})
    for (const uint32_t draw : {0u, 0x8000u, 0xffffu})
      EXPECT_EQ(stochastic_bf16(std::bit_cast<uint32_t>(x), draw), std::bit_cast<uint32_t>(x)) << x;
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
    const float found = std::bit_cast<float>(stochastic_bf16(nan, 0xffff));
    EXPECT_TRUE(std::isnan(found));
  }
}

TEST(StochasticBf16, GoesUpByAsManyDrawsAsTheValueIsAbove) {
  for (const float sign : {1.0f, -1.0f}) {
    int up = 0;
    for (uint32_t draw = 0; draw < 0x10000; ++draw) {
      const auto bits = std::bit_cast<uint32_t>(sign * (1 + 0.25f * kStep));
      const float found = std::bit_cast<float>(stochastic_bf16(bits, draw));
      if (found == sign * (1 + kStep))
        ++up;
      else
        ASSERT_EQ(found, sign);
    }
    EXPECT_EQ(up, 0x4000) << "a quarter";
  }
}

// Arithmetic without an error before the rounding, so that every device must give the same bits.
TEST_P(StochasticRounding, TakesTheDrawsOfTheContractInEveryOptimizer) {
  for (const int64_t n : {1, 31, 33, 256, 4096, 8200, 8196, 30001}) {
    const Buffer w = random(DType::bf16, {n}), g = zeros(DType::bf16, {n});
    const Values before = values(w);
    Values shrunk(before.size());  // by a weight decay of 2^-10
    for (size_t i = 0; i < before.size(); ++i)
      shrunk[i] = rounded(draws(), i, before[i] * (1 - 0x1p-10));
    const AdamWStep step{.lr = 0x1p-5f, .weight_decay = 0x1p-5f};
    for (const DType type : kComputeTypes) {
      const Buffer m = zeros(type, {n}), v = zeros(type, {n}), copy = of(DType::bf16, {n}, before);
      adamw(q_, {copy, {}, g, m, v, {}, draws()}, step);
      EXPECT_EQ(values(copy), shrunk) << "adamw, n=" << n;
    }
    {
      const int64_t blocks = adamw8bit_blocks(n);
      const Buffer m = zeros(DType::u8, {n}), v = zeros(DType::u8, {n});
      const Buffer m_most = zeros(DType::f32, {blocks}), v_most = zeros(DType::f32, {blocks});
      const Buffer copy = of(DType::bf16, {n}, before);
      adamw8bit(q_, {copy, {}, g, m, v, {}, draws()}, {m_most, v_most}, step);
      EXPECT_EQ(values(copy), shrunk) << "adamw8bit, n=" << n;
    }
    {
      const Buffer copy = of(DType::bf16, {n}, Values(idx(n), 1.0));
      const Buffer up = of(DType::bf16, {n}, Values(idx(n), -1.0));
      Values moved(idx(n));
      for (size_t i = 0; i < moved.size(); ++i) moved[i] = rounded(draws(), i, 1 + 0x1p-10);
      sgd(q_, {copy, {}, up, {}, {}, {}, draws()}, {.lr = 0x1p-10f});
      EXPECT_EQ(values(copy), moved) << "sgd, n=" << n;
    }
  }
}

TEST_P(StochasticRounding, TheMeanIsWhatWasComputed) {
  const int64_t n = 100000;
  const Buffer w = of(DType::bf16, {n}, Values(idx(n), 1.0));
  const Buffer g = of(DType::bf16, {n}, Values(idx(n), -1.0));
  sgd(q_, {w, {}, g, {}, {}, {}, draws()}, {.lr = 0x1p-10f});  // an eighth of a step
  double sum = 0;
  for (const double x : values(w)) {
    ASSERT_TRUE(x == 1 || x == 1 + double{kStep}) << x << " is not beside the value";
    sum += x;
  }
  const double error_of_mean = double{kStep} * std::sqrt(0.125 * 0.875 / double(n));
  EXPECT_NEAR(sum / double(n), 1 + 0x1p-10, 4 * error_of_mean);
}

TEST_P(StochasticRounding, SmallUpdatesMoveWeightsThatRoundingToNearestHolds) {
  const int64_t n = 20000, steps = 32;
  const float lr = 0x1p-13f;
  const Buffer by_chance = of(DType::bf16, {n}, Values(idx(n), 1.0));
  const Buffer nearest = of(DType::bf16, {n}, Values(idx(n), 1.0));
  const Buffer g = of(DType::bf16, {n}, Values(idx(n), -1.0));
  for (int64_t step = 1; step <= steps; ++step) {
    sgd(q_, {by_chance, {}, g, {}, {}, {}, draws(static_cast<uint64_t>(step))}, {.lr = lr});
    sgd(q_, {nearest, {}, g, {}, {}, {}}, {.lr = lr});
  }
  EXPECT_EQ(values(nearest), Values(idx(n), 1.0));
  const Values moved = values(by_chance);
  const double mean = std::accumulate(moved.begin(), moved.end(), 0.0) / double(n);
  // Each step adds a variance of at most lr * kStep.
  const double error_of_mean = std::sqrt(double(steps) * double{lr * kStep} / double(n));
  EXPECT_NEAR(mean, 1 + double(steps) * double{lr}, 4 * error_of_mean);
}

TEST_P(StochasticRounding, OtherStepsDrawOtherwise) {
  const int64_t n = 1000;
  const auto result = [&](uint64_t step) {
    const Buffer w = of(DType::bf16, {n}, Values(idx(n), 1.0));
    const Buffer g = of(DType::bf16, {n}, Values(idx(n), -1.0));
    sgd(q_, {w, {}, g, {}, {}, {}, draws(step)}, {.lr = 0x1p-8f});
    return values(w);
  };
  EXPECT_EQ(result(1), result(1));
  EXPECT_NE(result(1), result(2));
}

TEST_P(StochasticRounding, RefusesWeightsThatKeepTheirPrecision) {
  const Buffer wide = random(DType::f32, {8}), narrow = random(DType::bf16, {8});
  expect_bug("sgd", [&] { sgd(q_, {wide, {}, wide, {}, {}, {}, draws()}, {}); });
  expect_bug("adamw", [&] { adamw(q_, {narrow, wide, wide, wide, wide, {}, draws()}, {}); });
}

// A shard is updated as the same values are within the whole tensor.
TEST_P(StochasticRounding, OfAPartOfATensorTakesTheDrawsOfTheWhole) {
  constexpr int64_t n = 8192 + 520, cut = 4104;
  for (const char* kind : {"adamw", "adamw8bit", "sgd"}) {
    const bool few_bits = std::string_view(kind) == "adamw8bit";
    const Buffer start = random(DType::bf16, {n}), g = random(DType::bf16, {n}, 3);
    const auto run = [&](const std::vector<int64_t>& cuts) {
      const Buffer w = empty(DType::bf16, {n});
      copy(q_, w, start);
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const int64_t first = cuts[i], count = cuts[i + 1] - first;
        const DType type = few_bits ? DType::u8 : DType::bf16;
        const Buffer m = zeros(type, {count}), v = zeros(type, {count});
        OptimizerOperands p{w->rows(first, count), {}, g->rows(first, count), {}, {}, {}};
        p.rounding = draws();
        p.place.first = first;
        if (std::string_view(kind) == "sgd") {
          sgd(q_, p, {.lr = 0.01f});
          continue;
        }
        p.m = *m, p.v = *v;
        const int64_t blocks = adamw8bit_blocks(count);
        const Buffer ma = zeros(DType::f32, {blocks}), va = zeros(DType::f32, {blocks});
        if (few_bits)
          adamw8bit(q_, p, {*ma, *va}, {.lr = 0.01f});
        else
          adamw(q_, p, {.lr = 0.01f});
      }
      return values(w);
    };
    const Values whole = run({0, n});
    EXPECT_NE(whole, values(start)) << kind;
    EXPECT_EQ(run({0, few_bits ? 4096 : cut, n}), whole) << kind;
  }
}

class PartsOfTensors : public StochasticRounding {
 protected:
  // Updates the values of `start` from zero moments, as values at `place` of a whole tensor.
  Values updated(std::string_view kind, const Tensor& start, const Tensor& grad,
                 const RoundingPlace& place) {
    const int64_t n = start.numel();
    const DType type = kind == "adamw8bit" ? DType::u8 : DType::bf16;
    const Buffer w = empty(DType::bf16, {n}), m = zeros(type, {n}), v = zeros(type, {n});
    copy(q_, w, start);
    OptimizerOperands p{w, {}, grad, {}, {}, {}, draws(), place};
    if (kind == "sgd") {
      sgd(q_, p, {.lr = 0.01f});
      return values(w);
    }
    p.m = *m, p.v = *v;
    if (kind == "adamw") {
      adamw(q_, p, {.lr = 0.01f});
      return values(w);
    }
    const Buffer m_most = zeros(DType::f32, {adamw8bit_blocks(n)});
    const Buffer v_most = zeros(DType::f32, {adamw8bit_blocks(n)});
    adamw8bit(q_, p, {*m_most, *v_most}, {.lr = 0.01f});
    return values(w);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, PartsOfTensors, testing::ValuesIn(devices_present()), device_name);

constexpr const char* kKinds[] = {"adamw", "adamw8bit", "sgd"};

// Columns of a matrix, whole and in two parts. Widths around what is drawn in one go, and all
// columns, which are consecutive values.
TEST_P(PartsOfTensors, TakeTheDrawsOfTheirColumns) {
  for (const auto& [rows, columns, first, width] : {std::array<int64_t, 4>{40, 48, 8, 24},
                                                    {33, 40, 32, 8},
                                                    {21, 200, 0, 72},
                                                    {3, 1000, 328, 336},
                                                    {7, 136, 8, 128},
                                                    {9, 64, 0, 64}}) {
    const int64_t n = rows * columns, part = rows * width;
    const Buffer w = random(DType::bf16, {rows, columns});
    const Buffer g = random(DType::bf16, {rows, columns}, 3);
    const Buffer w_part = of(DType::bf16, {part}, values(w->cols(first, width)));
    const Buffer g_part = of(DType::bf16, {part}, values(g->cols(first, width)));
    for (const std::string_view kind : kKinds) {
      const Buffer whole =
          of(DType::bf16, {rows, columns}, updated(kind, w->reshape({n}), g->reshape({n}), {}));
      const Values expected = values(whole->cols(first, width));
      const RoundingPlace place{.first = first, .width = width, .columns = columns};
      EXPECT_EQ(updated(kind, w_part, g_part, place), expected) << kind << " width " << width;
      const int64_t skipped = part / 16 * 8;
      RoundingPlace later = place;
      later.skipped = skipped;
      EXPECT_EQ(updated(kind, w_part->rows(skipped, part - skipped),
                        g_part->rows(skipped, part - skipped), later),
                Values(expected.begin() + skipped, expected.end()))
          << kind << " width " << width << " skipped " << skipped;
    }
  }
}

TEST_P(PartsOfTensors, HaveAPlaceInGroupsOfEight) {
  const Buffer w = random(DType::bf16, {32}), g = random(DType::bf16, {32});
  for (const RoundingPlace& place :
       {RoundingPlace{.first = 4}, RoundingPlace{.first = -8}, RoundingPlace{.skipped = 8},
        RoundingPlace{.width = 12, .columns = 24}, RoundingPlace{.width = 8, .columns = 20},
        RoundingPlace{.width = 8, .columns = 16, .skipped = 4},
        RoundingPlace{.width = 16, .columns = 8}, RoundingPlace{.columns = 8}})
    expect_bug("sgd", [&] { sgd(q_, {w, {}, g, {}, {}, {}, draws(), place}, {}); });
}

}  // namespace
}  // namespace capstan::test
