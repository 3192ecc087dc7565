#include "ops/dropped_linear.h"

#include <ostream>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

constexpr RngKey kKey{.seed = 7, .step = 3, .site = 11};

struct Size {
  int64_t T, O, I;
};

std::ostream& operator<<(std::ostream& to, const Size& s) {
  return to << "T=" << s.T << " O=" << s.O << " I=" << s.I;
}

// On a GPU most are dropped on their way through tensor cores, in one tile or many, and cut off at
// the last token; the last four are not.
const std::vector<Size> kSizes = {{1, 16, 128},   {63, 16, 256},  {64, 32, 128},  {65, 48, 384},
                                  {100, 96, 256}, {200, 96, 640}, {130, 64, 384}, {300, 32, 1152},
                                  {33, 3, 31},    {70, 24, 40},   {40, 112, 128}, {50, 16, 64}};

// The token of row t: runs of 30 that do not follow each other, as in padded batches.
int32_t ordinal(int64_t t) {
  return static_cast<int32_t>(1000 - t / 30 * 50 + t % 30 + t / 600 * 2000);
}

// x [T, I] where the mask keeps it, times 1 / (1 - p).
Values dropped_f64(Values x, int64_t T, float p) {
  const Rng rng(kKey);
  const double least = 0x1p16 * double{p};  // exact for the p that are used here
  const size_t I = x.size() / idx(T);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t t = i / I, half = idx(ordinal(static_cast<int64_t>(t))) * I + i % I;
    x[i] = rng.half(half) >= least ? x[i] / (1 - double{p}) : 0;
  }
  return x;
}

class DroppedLinear : public OnEveryDevice {
 protected:
  // Drops half of the values.
  DropoutMask half(int64_t T) {
    std::vector<int32_t> all;
    for (int64_t t = 0; t < T; ++t) all.push_back(ordinal(t));
    ordinals_ = empty(DType::i32, {T});
    q_.upload(ordinals_, all.data());
    return {0.5f, kKey, *ordinals_};
  }
  Buffer ordinals_;

  // p = 1/2: dropped values are exact in every type, wherever they are.
  void expect_f64(DType dtype, const Size& s) {
    const Buffer x = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
    const Buffer y = empty(dtype, {s.T, s.O});
    dropped_linear(q_, y, x, w, -1.5f, half(s.T));
    Values expected =
        product_f64(s.T, s.O, s.I, dropped_f64(values(x), s.T, 0.5f), false, values(w), true);
    for (double& v : expected) v *= -1.5;
    EXPECT_LT(error(values(y), expected), tolerance(dtype, s.I)) << name_of(dtype) << ' ' << s;
  }
  void expect_f64_of_data(DType dtype, const Size& s) {
    const Buffer dx = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
    const Buffer dy = random(dtype, {s.T, s.O});
    Values expected =
        dropped_f64(product_f64(s.T, s.I, s.O, values(dy), false, values(w), false), s.T, 0.5f);
    const Values before = values(dx);
    for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
    dropped_linear_backward_data(q_, dx, dy, w, half(s.T));
    EXPECT_LT(error(values(dx), expected), 2 * tolerance(dtype, s.O)) << name_of(dtype) << ' ' << s;
  }
  void expect_f64_of_weight(DType dtype, DType weights, const Size& s) {
    const Buffer x = random(dtype, {s.T, s.I}), dy = random(dtype, {s.T, s.O});
    const Buffer dw = random(weights, {s.O, s.I});
    Values expected =
        product_f64(s.O, s.I, s.T, values(dy), true, dropped_f64(values(x), s.T, 0.5f), false);
    const Values before = values(dw);
    for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
    dropped_linear_backward_weight(q_, dw, dy, x, half(s.T));
    EXPECT_LT(error(values(dw), expected), tolerance(weights, s.T))
        << name_of(dtype) << ' ' << name_of(weights) << ' ' << s;
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, DroppedLinear, testing::ValuesIn(devices_present()), device_name);

TEST_P(DroppedLinear, MatchesF64) {
  for (const DType dtype : kComputeTypes)
    for (const Size& s : kSizes) expect_f64(dtype, s);
}
TEST_P(DroppedLinear, BackwardDataAddsWhatF64Does) {
  for (const DType dtype : kComputeTypes)
    for (const Size& s : kSizes) expect_f64_of_data(dtype, s);
}
TEST_P(DroppedLinear, BackwardWeightAddsWhatF64Does) {
  for (const DType dtype : kComputeTypes)
    for (const DType weights : types_beside({dtype}))
      for (const Size& s : kSizes) expect_f64_of_weight(dtype, weights, s);
}

// Three tiles for every block of each kernel, on 132 multiprocessors, the last cut off. Nothing but
// the kernels themselves runs on the GPU: racecheck takes long for a library's.
TEST_P(DroppedLinear, MatchesF64OverManyTiles) {
  if (GetParam() != Device::cuda) GTEST_SKIP() << "of a GPU's tiles";
  for (const int64_t O : {16, 96}) {
    const Size s = {11300, O, 384};
    expect_f64(DType::bf16, s);
    expect_f64_of_data(DType::bf16, s);
    expect_f64_of_weight(DType::bf16, DType::f32, s);
    const Buffer x = random(DType::bf16, {s.T, s.I}), w = random(DType::bf16, {s.O, s.I});
    const Buffer dy = random(DType::bf16, {s.T, s.O}), y = empty(DType::bf16, {s.T, s.O});
    const Buffer dx = empty(DType::bf16, {s.T, s.I}), dw = empty(DType::f32, {s.O, s.I});
    const auto results = [&] {
      fill(q_, dx, 0);
      fill(q_, dw, 0);
      dropped_linear(q_, y, x, w, 1, {0.05f, kKey});
      dropped_linear_backward_data(q_, dx, dy, w, {0.05f, kKey});
      dropped_linear_backward_weight(q_, dw, dy, x, {0.05f, kKey});
      return std::vector<Values>{values(y), values(dx), values(dw)};
    };
    EXPECT_EQ(results(), results());
  }
}

// Any p, a key on the device, and twice the same bits.
TEST_P(DroppedLinear, IsDropoutAndALinearMap) {
  const Size s = {150, 32, 256};
  constexpr float kP = 0.05f;
  const uint64_t words[] = {kKey.seed, kKey.step};
  const Buffer key = empty(DType::i32, {RandomKey::kWords});
  q_.upload(key, words);
  for (const DType dtype : kComputeTypes) {
    const double allowed = dtype == DType::bf16 ? 0x1p-7 : 2 * tolerance(dtype, s.I);
    const Buffer x = random(dtype, {s.T, s.I}), w = random(dtype, {s.O, s.I});
    const Buffer dy = random(dtype, {s.T, s.O}), dropped = empty(dtype, {s.T, s.I});
    const Buffer y = empty(dtype, {s.T, s.O}), dx = empty(dtype, {s.T, s.I});
    const Buffer dw = empty(DType::f32, {s.O, s.I});
    const auto results = [&](const auto& compute) {
      fill(q_, dx, 0);
      fill(q_, dw, 0);
      compute();
      return std::vector<Values>{values(y), values(dx), values(dw)};
    };
    const auto apart = results([&] {
      dropout(q_, dropped, x, {kP, kKey});
      linear(q_, y, dropped, w, {}, Write::replace, 2.0f);
      linear_backward_weight(q_, dw, {}, dy, dropped);
      linear_backward_data(q_, dropped, dy, w);
      dropout(q_, dx, dropped, {kP, kKey}, Write::add);
    });
    const auto together = [&](const RandomKey& k) {
      return results([&] {
        dropped_linear(q_, y, x, w, 2.0f, {kP, k});
        dropped_linear_backward_data(q_, dx, dy, w, {kP, k});
        dropped_linear_backward_weight(q_, dw, dy, x, {kP, k});
      });
    };
    const auto found = together(kKey);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LT(error(found[i], apart[i]), allowed) << name_of(dtype) << ' ' << i;
    EXPECT_EQ(together(kKey), found);
    EXPECT_EQ(together({*key, kKey.site}), found);
  }
}

TEST_P(DroppedLinear, NoTokensGiveNothing) {
  const Buffer x = empty(DType::bf16, {0, 128}), y = empty(DType::bf16, {0, 16});
  const Buffer w = random(DType::bf16, {16, 128}), dw = random(DType::f32, {16, 128});
  const Values before = values(dw);
  dropped_linear(q_, y, x, w, 1, {0.5f, kKey});
  dropped_linear_backward_data(q_, x, y, w, {0.5f, kKey});
  dropped_linear_backward_weight(q_, dw, y, x, {0.5f, kKey});
  EXPECT_EQ(values(dw), before);
}

TEST_P(DroppedLinear, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {4, 8}), w = random(DType::f32, {16, 8});
  const Buffer y = empty(DType::f32, {4, 16}), other = empty(DType::f32, {5, 16});
  expect_bug("dropped_linear", [&] { dropped_linear(q_, other, x, w, 1, {0.5f, kKey}); });
  expect_bug("dropped_linear", [&] { dropped_linear(q_, y, x, w, 1, {1, kKey}); });
  expect_bug("dropped_linear", [&] { dropped_linear(q_, y, x, w, 1, {0.5f, {*x, 1}}); });
  expect_bug("dropped_linear_backward_data", [&] {
    dropped_linear_backward_data(q_, x, other, w, {0.5f, kKey});
  });
  expect_bug("dropped_linear_backward_weight", [&] {
    dropped_linear_backward_weight(q_, w, other, x, {0.5f, kKey});
  });
}

TEST(DroppedLinearOnSim, CostsAgree) {
  for (int op = 0; op < 3; ++op)
    expect_same_on_sim([op](Queue& q) {
      const Buffer x = buffer_of(q, DType::bf16, {4, 128}, Values(512));
      const Buffer w = buffer_of(q, DType::bf16, {16, 128}, Values(2048));
      const Buffer y = buffer_of(q, DType::bf16, {4, 16}, Values(64));
      if (op == 0) dropped_linear(q, y, x, w, 1, {0.5f, kKey});
      if (op == 1) dropped_linear_backward_data(q, x, y, w, {0.5f, kKey});
      if (op == 2) dropped_linear_backward_weight(q, w, y, x, {0.5f, kKey});
    });
}

}  // namespace
}  // namespace capstan::test
