#include "ops/optimizer.h"

#include <vector>

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Optimizer);

constexpr int kSteps = 6;

void adamw_f64(Values& w, const Values& grad, Values& m, Values& v, double scale,
               const AdamWStep& s) {
  const double lr{s.lr}, b1{s.beta1}, b2{s.beta2};
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = grad[i] * scale;
    w[i] -= lr * double{s.weight_decay} * w[i];
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    const double m_hat = m[i] / (1 - std::pow(b1, double(s.step)));
    const double v_hat = v[i] / (1 - std::pow(b2, double(s.step)));
    w[i] -= lr * m_hat / (std::sqrt(v_hat) + double{s.eps});
  }
}

void sgd_f64(Values& w, const Values& grad, Values& m, double scale, const SgdStep& s) {
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = grad[i] * scale + double{s.weight_decay} * w[i];
    double step = g;
    if (s.momentum != 0) {
      m[i] = s.step == 1 ? g : double{s.momentum} * m[i] + (1 - double{s.dampening}) * g;
      step = s.nesterov ? g + double{s.momentum} * m[i] : m[i];
    }
    w[i] -= double{s.lr} * step;
  }
}

// Each step rounds the state once more.
double after_steps(DType dtype) {
  return kSteps * tolerance(dtype);
}

TEST_P(Optimizer, AdamWFollowsF64) {
  for (const DType dtype : kComputeTypes)
    for (const int64_t n : {1, 31, 33, 288, 5000}) {
      const Buffer w = random(dtype, {n}), m = zeros(dtype, {n}), v = zeros(dtype, {n});
      const Buffer scale = of(DType::f32, {1}, {0.5});
      Values w64 = values(w), m64(idx(n), 0.0), v64(idx(n), 0.0);
      for (int step = 1; step <= kSteps; ++step) {
        const Buffer g = random(dtype, {n});
        const AdamWStep s{.lr = 0.1f, .beta2 = 0.95f, .weight_decay = 0.1f, .step = step};
        adamw(q_, {w, {}, g, m, v, scale}, s);
        adamw_f64(w64, values(g), m64, v64, 0.5, s);
      }
      EXPECT_LT(error(values(w), w64), after_steps(dtype)) << name_of(dtype) << " n=" << n;
      EXPECT_LT(error(values(m), m64), after_steps(dtype));
      EXPECT_LT(error(values(v), v64), after_steps(dtype));
    }
}

TEST_P(Optimizer, AMasterKeepsWhatANarrowWeightLoses) {
  const int64_t n = 1000;
  const Buffer w = random(DType::bf16, {n}), master = of(DType::f32, {n}, values(w));
  const Buffer m = zeros(DType::f32, {n}), v = zeros(DType::f32, {n});
  const Buffer scale = of(DType::f32, {1}, {1});
  Values w64 = values(master), m64(idx(n), 0.0), v64(idx(n), 0.0);
  for (int step = 1; step <= kSteps; ++step) {
    const Buffer g = random(DType::f32, {n});
    const AdamWStep s{.lr = 1e-4f, .step = step};  // far below the steps between bf16 values
    adamw(q_, {w, master, g, m, v, scale}, s);
    adamw_f64(w64, values(g), m64, v64, 1, s);
  }
  EXPECT_LT(error(values(master), w64), after_steps(DType::f32));
  EXPECT_EQ(values(w), values(of(DType::bf16, {n}, values(master)))) << "not the master, rounded";
}

TEST_P(Optimizer, TypesMix) {
  for (const DType w_type : kComputeTypes)
    for (const DType g_type : types_beside({w_type}))
      for (const DType m_type : types_beside({w_type, g_type}))
        for (const DType v_type : types_beside({w_type, g_type, m_type})) {
          const int64_t n = 600;
          const Buffer w = random(w_type, {n}), g = random(g_type, {n}), m = random(m_type, {n});
          const Buffer v = of(v_type, {n}, Values(idx(n), 0.3)), scale = of(DType::f32, {1}, {2});
          Values w64 = values(w), m64 = values(m), v64 = values(v);
          const AdamWStep s{.lr = 0.01f, .step = 3};
          adamw(q_, {w, {}, g, m, v, scale}, s);
          adamw_f64(w64, values(g), m64, v64, 2, s);
          EXPECT_LT(error(values(w), w64), tolerance(w_type));
          EXPECT_LT(error(values(m), m64), tolerance(m_type));
          EXPECT_LT(error(values(v), v64), tolerance(v_type));
        }
}

TEST_P(Optimizer, BiasCorrectionHoldsAfterManySteps) {
  // beta2^step is then so near to 0 or 1 that f32 would lose the correction.
  for (const int64_t step : {int64_t{1}, int64_t{1000000}}) {
    const Buffer w = zeros(DType::f32, {1}), g = of(DType::f32, {1}, {1});
    const Buffer m = of(DType::f32, {1}, {0.25}), v = of(DType::f32, {1}, {0.25});
    const AdamWStep s{.beta2 = 0.99999f, .step = step};
    Values w64{0}, m64{0.25}, v64{0.25};
    adamw(q_, {w, {}, g, m, v, {}}, s);
    adamw_f64(w64, {1}, m64, v64, 1, s);
    EXPECT_LT(error(values(w), w64), tolerance(DType::f32)) << "step " << step;
  }
}

// One parameter's tensors, of any mix of types.
struct Tensors {
  Buffer weight, master, grad, m, v;

  OptimizerOperands operands(const Tensor& scale) const {
    return {weight, master, grad, m, v, scale};
  }
};

TEST_P(Optimizer, ManyParametersAtOnceEqualACallForEachBitForBit) {
  const auto make = [&](int64_t n, int64_t seed) {
    // All f32, all bf16, a master beside a narrow weight, a weight with wide moments.
    const DType weight = seed % 4 == 0 ? DType::f32 : DType::bf16;
    const DType rest = seed % 4 == 1 ? DType::bf16 : DType::f32;
    const auto normal = [&](DType type, int64_t more) {
      return of(type, {n}, normal_values(n, static_cast<uint64_t>(10 * seed + more)));
    };
    Tensors t{.weight = normal(weight, 0),
              .master = {},
              .grad = normal(rest, 1),
              .m = normal(rest, 2),
              .v = of(rest, {n}, Values(idx(n), 0.2))};
    if (seed % 4 == 2) t.master = of(DType::f32, {n}, values(t.weight));
    return t;
  };
  const Buffer scale = of(DType::f32, {1}, {0.5});
  constexpr int64_t kSizes[] = {1, 8, 33, 4096, 8192, 8200, 8196, 30001};
  std::vector<Tensors> alone, together;
  std::vector<AdamWParameter> all;
  // More than go with one launch.
  for (int64_t i = 0; i < 150; ++i) {
    const int64_t n = kSizes[i < 32 ? (i + i / 8) % 8 : i % 3];
    const AdamWStep step{.lr = 0.01f, .weight_decay = i % 3 == 0 ? 0.0f : 0.1f, .step = 1 + i % 2};
    alone.push_back(make(n, i));
    together.push_back(make(n, i));
    adamw(q_, alone.back().operands(scale), step);
    all.push_back({together.back().operands(scale), step});
  }
  adamw(q_, all);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(values(together[i].weight), values(alone[i].weight)) << i;
    EXPECT_EQ(values(together[i].m), values(alone[i].m)) << i;
    EXPECT_EQ(values(together[i].v), values(alone[i].v)) << i;
    if (alone[i].master) {
      EXPECT_EQ(values(together[i].master), values(alone[i].master)) << i;
    }
  }
}

TEST_P(Optimizer, SgdFollowsF64) {
  const SgdStep variants[] = {
      {.lr = 0.1f},
      {.lr = 0.1f, .weight_decay = 0.1f},
      {.lr = 0.1f, .momentum = 0.9f},
      {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.5f, .weight_decay = 0.01f},
      {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true},
  };
  for (const DType dtype : kComputeTypes)
    for (SgdStep s : variants)
      for (const int64_t n : {1, 33, 5000}) {
        const Buffer w = random(dtype, {n}), scale = of(DType::f32, {1}, {0.5});
        Buffer m;  // NaN at first: the first step must not read it
        if (s.momentum != 0) m = empty(dtype, {n});
        Values w64 = values(w), m64(idx(n), 0.0);
        for (s.step = 1; s.step <= kSteps; ++s.step) {
          const Buffer g = random(dtype, {n});
          sgd(q_, {w, {}, g, m, {}, scale}, s);
          sgd_f64(w64, values(g), m64, 0.5, s);
        }
        EXPECT_LT(error(values(w), w64), after_steps(dtype)) << name_of(dtype) << " n=" << n;
      }
}

TEST_P(Optimizer, SgdKeepsAMaster) {
  const Buffer w = random(DType::bf16, {50}), master = of(DType::f32, {50}, values(w));
  const Buffer g = random(DType::bf16, {50});
  Values w64 = values(w), none(50);
  sgd(q_, {w, master, g, {}, {}, {}}, {.lr = 1e-5f});
  sgd_f64(w64, values(g), none, 1, {.lr = 1e-5f});
  EXPECT_LT(error(values(master), w64), tolerance(DType::f32));
  EXPECT_EQ(values(w), values(of(DType::bf16, {50}, values(master))));
}

TEST_P(Optimizer, AScaleOfNanLeavesEverythingAsItIs) {
  for (const DType dtype : kComputeTypes) {
    const int64_t n = 5000;
    const Buffer w = random(dtype, {n}), master = random(DType::f32, {n}), g = random(dtype, {n});
    const Buffer m = random(DType::f32, {n}), v = random(DType::f32, {n});
    const Buffer m8 = zeros(DType::u8, {n}), v8 = zeros(DType::u8, {n});
    const Buffer m_max = random(DType::f32, {adamw8bit_blocks(n)});
    const Buffer v_max = random(DType::f32, {adamw8bit_blocks(n)});
    const Buffer scale = of(DType::f32, {1}, {NAN});
    const std::vector<const Buffer*> all = {&w, &master, &m, &v, &m8, &v8, &m_max, &v_max};
    std::vector<Values> before;
    for (const Buffer* t : all) before.push_back(values(*t));
    adamw(q_, {w, master, g, m, v, scale}, {.lr = 0.1f});
    adamw8bit(q_, {w, master, g, m8, v8, scale}, {m_max, v_max}, {.lr = 0.1f});
    sgd(q_, {w, master, g, m, {}, scale}, {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f});
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(values(*all[i]), before[i]) << i;
  }
}

// One parameter after a step of each kind; the flag that the step left.
class NotFinite : public OnEveryDevice {
 protected:
  // At `place` the gradient, weight and moments are those given; everywhere else they are ordinary.
  struct Odd {
    double grad = 1, weight = 1, m = 0, v = 0;
  };
  enum class Kind { adamw, adamw8bit, sgd };

  double flag_after(Kind kind, DType dtype, bool with_master, int64_t n, int64_t place,
                    const Odd& odd, float lr, double scale = 1) {
    const auto with = [&](DType type, double value, double rest) {
      Values all(idx(n), rest);
      all[idx(place)] = value;
      return of(type, {n}, all);
    };
    const Buffer w = with(dtype, odd.weight, 0.5), g = with(DType::f32, odd.grad, 0.25);
    const Buffer m = with(dtype, odd.m, 0.125), v = with(dtype, odd.v, 0.125);
    const Buffer m8 = zeros(DType::u8, {n}), v8 = zeros(DType::u8, {n});
    const Buffer m_max = zeros(DType::f32, {adamw8bit_blocks(n)});
    const Buffer v_max = zeros(DType::f32, {adamw8bit_blocks(n)});
    const Buffer by = of(DType::f32, {1}, {scale}), flag = zeros(DType::f64, {1});
    Buffer master;
    if (with_master) master = with(DType::f32, odd.weight, 0.5);
    const AdamWStep step{.lr = lr, .weight_decay = 0, .step = 2};
    const OptimizerOperands full{w, master, g, m, v, by}, narrow{w, master, g, m8, v8, by};
    switch (kind) {
      case Kind::adamw: adamw(q_, std::vector<AdamWParameter>{{full, step}}, flag); break;
      case Kind::adamw8bit:
        adamw8bit(q_, std::vector<AdamW8bitParameter>{{narrow, {m_max, v_max}, step}}, flag);
        break;
      case Kind::sgd:
        sgd(q_, {w, master, g, m, {}, by}, {.lr = lr, .momentum = 0.9f, .step = 2}, flag);
        break;
    }
    return values(flag)[0];
  }

  template <class Check>
  void for_all(const Check& check) {
    for (const Kind kind : {Kind::adamw, Kind::adamw8bit, Kind::sgd})
      for (const DType dtype : kComputeTypes)
        for (const bool master : {false, true}) {
          SCOPED_TRACE(testing::Message() << int(kind) << " " << name_of(dtype) << " " << master);
          check(kind, dtype, master);
        }
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, NotFinite, testing::ValuesIn(devices_present()), device_name);

TEST_P(NotFinite, IsToldOfAWeightAtAnyPlace) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for_all([&](Kind kind, DType dtype, bool master) {
    for (const int64_t n : {1, 7, 512, 8199})
      for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
        EXPECT_EQ(flag_after(kind, dtype, master, n, place, {}, 0.1f), 0) << n << " " << place;
        for (const double bad : {kInfinite, -kInfinite, std::nan("")})
          EXPECT_EQ(flag_after(kind, dtype, master, n, place, {.weight = bad}, 0.1f), 1)
              << n << " " << place << " " << bad;
      }
  });
}

TEST_P(NotFinite, IsToldOfALearningRateThatIsTooLarge) {
  for_all([&](Kind kind, DType dtype, bool master) {
    EXPECT_EQ(flag_after(kind, dtype, master, 300, 299, {}, 1e30f), dtype == DType::f16);
    EXPECT_EQ(flag_after(kind, dtype, master, 300, 299, {.grad = 8}, 3.4e38f), 1);
  });
}

// AdamW divides by the root of the second moment: an infinite one leaves the weight as it is.
TEST_P(NotFinite, IsToldOfAMomentWhoseWeightIsFinite) {
  for_all([&](Kind kind, DType dtype, bool master) {
    const bool too_large = kind != Kind::sgd || dtype == DType::f16;
    EXPECT_EQ(flag_after(kind, dtype, master, 300, 7, {.grad = 1e30}, 1e-9f), too_large);
    EXPECT_EQ(flag_after(kind, dtype, master, 300, 7, {.grad = 1e30}, 1e-9f, NAN), 0)
        << "a step that is left out stores nothing";
  });
}

// The largest f32 is infinite in bf16, and 65520 in f16, with or without a master beside it.
TEST_P(NotFinite, IsToldOfAWeightThatIsTooLargeForItsType) {
  constexpr double kLargest = std::numeric_limits<float>::max(), kLess = 0x1.fep127;
  for_all([&](Kind kind, DType dtype, bool master) {
    const bool half = dtype == DType::f16;
    if (is_narrow(dtype)) {
      EXPECT_EQ(flag_after(kind, dtype, master, 9, 4, {.weight = half ? 65520 : kLargest}, 0), 1);
    }
    EXPECT_EQ(flag_after(kind, dtype, master, 9, 4, {.weight = half ? -65504 : -kLess}, 0), 0);
  });
}

TEST_P(NotFinite, WhatWasToldStays) {
  const Buffer flag = of(DType::f64, {1}, {1}), w = random(DType::f32, {9});
  sgd(q_, {w, {}, w, {}, {}, {}}, {}, flag);
  EXPECT_EQ(values(flag)[0], 1);
  expect_bug("sgd", [&] { sgd(q_, {w, {}, w, {}, {}, {}}, {}, w); });
}

TEST_P(Optimizer, DoesNotDependOnTheThreads) {
  const int64_t n = 50001;
  const Buffer g = random(DType::f32, {n}), scale = of(DType::f32, {1}, {0.3});
  expect_same_for_any_threads([&] {
    const Buffer w = of(DType::f32, {n}, normal_values(n, 77));
    const Buffer m = zeros(DType::f32, {n}), v = zeros(DType::f32, {n});
    adamw(q_, {w, {}, g, m, v, scale}, {});
    sgd(q_, {w, {}, g, m, {}, scale}, {.momentum = 0.5f, .step = 2});
    const Buffer sum = zeros(DType::f64, {1});
    sum_squares(q_, sum, w);
    Values all = values(w);
    all.push_back(values(sum)[0]);
    return all;
  });
}

TEST_P(Optimizer, RefusesWrongOperands) {
  const Buffer a = random(DType::f32, {8}), b = random(DType::f32, {9}),
               one = zeros(DType::f32, {1});
  expect_bug("adamw", [&] { adamw(q_, {a, {}, b, a, a, one}, {}); });
  expect_bug("adamw", [&] { adamw(q_, {a, {}, a, a, {}, one}, {}); });
  expect_bug("adamw", [&] { adamw(q_, {a, b, a, a, a, one}, {}); });
  expect_bug("adamw", [&] { adamw(q_, {a, {}, a, a, a, b}, {}); });
  expect_bug("adamw", [&] { adamw(q_, {a, {}, a, a, a, one}, {.step = 0}); });
  expect_bug("sgd", [&] { sgd(q_, {a, {}, a, {}, {}, one}, {.momentum = 0.9f}); });
  expect_bug("sgd", [&] { sgd(q_, {a, {}, a, a, {}, one}, {}); });
}

TEST(OptimizerOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer w = buffer_of(q, DType::bf16, {8}, Values(8));
    const Buffer a = buffer_of(q, DType::f32, {8}, Values(8));
    const Buffer scale = buffer_of(q, DType::f32, {1}, {1});
    adamw(q, {w, a, a, a, a, scale}, {});
    sgd(q, {w, {}, a, {}, {}, scale}, {});
  });
}

}  // namespace
}  // namespace capstan::test
