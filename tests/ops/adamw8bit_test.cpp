#include <bit>
#include <cstring>

#include "base/subnormals.h"
#include "ops/cpu/dynamic_map.h"
#include "ops/cuda/dynamic_cells.h"
#include "ops/elementwise.h"
#include "ops/optimizer.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(AdamW8bit);

using cpu::DynamicMap;

// A moment in 8 bits, and what it stands for.
struct Moment {
  Buffer codes, absmax;
  const DynamicMap& map;

  Values values(Queue& q) const {
    Values x = values_of(q, codes);
    const Values scales = values_of(q, absmax);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = double{map[static_cast<uint8_t>(x[i])] * static_cast<float>(scales[i / 256])};
    return x;
  }
};

// Half of the widest step of the map, as a fraction of the block's largest value. (-1 is not in the
// signed map, and as far from its nearest.)
double half_step(const DynamicMap& map) {
  double widest = 0;
  for (size_t i = 0; i + 1 < 256; ++i)
    widest = std::max(widest, double{map.values()[i + 1]} - double{map.values()[i]});
  return widest / 2;
}

struct Trained {
  Buffer w, master;
  Moment m, v;
  OptimizerOperands operands(const Tensor& g, const Tensor& scale) const {
    return {w, master, g, m.codes, v.codes, scale};
  }
  MomentScales scales() const { return {m.absmax, v.absmax}; }
};

Trained make_trained(Queue& q, Buffer w, Buffer master, int64_t n) {
  const auto zero = [&](DType type, int64_t count) {
    return buffer_of(q, type, {count}, Values(idx(count), 0.0));
  };
  const int64_t blocks = adamw8bit_blocks(n);
  return {std::move(w),
          std::move(master),
          {zero(DType::u8, n), zero(DType::f32, blocks), DynamicMap::with_sign()},
          {zero(DType::u8, n), zero(DType::f32, blocks), DynamicMap::without_sign()}};
}

// One step from the state as it is stored: what the moments are before they are rounded.
struct Exact {
  Values w, m, v;
};
Exact step_f64(const Values& w, const Values& grad, const Values& m, const Values& v, double scale,
               const AdamWStep& s) {
  Exact e{w, m, v};
  const double b1{s.beta1}, b2{s.beta2}, lr{s.lr};
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = grad[i] * scale;
    e.m[i] = b1 * m[i] + (1 - b1) * g;
    e.v[i] = b2 * v[i] + (1 - b2) * g * g;
    const double m_hat = e.m[i] / (1 - std::pow(b1, double(s.step)));
    const double v_hat = e.v[i] / (1 - std::pow(b2, double(s.step)));
    e.w[i] =
        w[i] * (1 - lr * double{s.weight_decay}) - lr * m_hat / (std::sqrt(v_hat) + double{s.eps});
  }
  return e;
}

// No value of a block is farther from its code than half a step; the scales are the largest.
void expect_rounded(Queue& q, const Moment& moment, const Values& exact) {
  const Values stored = moment.values(q), scales = values_of(q, moment.absmax);
  const double half = half_step(moment.map) + 0x1p-22;  // the moment itself is rounded to f32
  for (size_t b = 0; b < scales.size(); ++b) {
    double most = 0;
    for (size_t i = 256 * b; i < std::min(exact.size(), 256 * (b + 1)); ++i) {
      most = std::max(most, std::abs(exact[i]));
      ASSERT_LE(std::abs(stored[i] - exact[i]), half * scales[b] + 1e-45) << "value " << i;
    }
    EXPECT_NEAR(scales[b], most, 1e-6 * most) << "block " << b;
  }
}

TEST_P(AdamW8bit, FollowsF64FromTheStateThatIsStored) {
  for (const DType w_type : kComputeTypes)
    for (const DType g_type : types_beside({w_type}))
      for (const int64_t n : {1, 255, 256, 257, 4096, 5000}) {
        const Trained run = make_trained(q_, random(w_type, {n}), {}, n);
        const Buffer scale = of(DType::f32, {1}, {0.5});
        for (int step = 1; step <= 4; ++step) {
          const Buffer g = random(g_type, {n});
          const AdamWStep s{.lr = 0.1f, .beta2 = 0.95f, .weight_decay = 0.1f, .step = step};
          const Exact e =
              step_f64(values(run.w), values(g), run.m.values(q_), run.v.values(q_), 0.5, s);
          adamw8bit(q_, run.operands(g, scale), run.scales(), s);
          EXPECT_LT(error(values(run.w), e.w), tolerance(w_type, 1, 8)) << n << " step " << step;
          expect_rounded(q_, run.m, e.m);
          expect_rounded(q_, run.v, e.v);
        }
      }
}

TEST_P(AdamW8bit, AMasterKeepsWhatANarrowWeightLoses) {
  const int64_t n = 1000;
  Buffer w = random(DType::bf16, {n}), master = of(DType::f32, {n}, values(w));
  const Trained run = make_trained(q_, std::move(w), std::move(master), n);
  const Buffer scale = of(DType::f32, {1}, {1});
  for (int step = 1; step <= 4; ++step) {
    const Buffer g = random(DType::f32, {n});
    const AdamWStep s{.lr = 1e-4f, .step = step};
    const Exact e =
        step_f64(values(run.master), values(g), run.m.values(q_), run.v.values(q_), 1, s);
    adamw8bit(q_, run.operands(g, scale), run.scales(), s);
    EXPECT_LT(error(values(run.master), e.w), tolerance(DType::f32));
  }
  EXPECT_EQ(values(run.w), values(of(DType::bf16, {n}, values(run.master))));
}

TEST_P(AdamW8bit, ABlockWithoutGradientsStaysZero) {
  const int64_t n = 3 * 256 + 7;
  const Trained run = make_trained(q_, of(DType::f32, {n}, Values(idx(n), 1.0)), {}, n);
  Values gradient = normal_values(n, 1);
  std::fill(gradient.begin() + 256, gradient.begin() + 512, 0.0);
  const Buffer g = of(DType::f32, {n}, gradient);
  for (int step = 1; step <= 2; ++step)
    adamw8bit(q_, run.operands(g, {}), run.scales(), {.lr = 0.1f, .weight_decay = 0, .step = step});
  const Values w = values(run.w), m = values(run.m.codes), v = values(run.v.codes);
  for (size_t i = 256; i < 512; ++i) {
    EXPECT_EQ(w[i], 1) << i;
    EXPECT_EQ(run.m.map[static_cast<uint8_t>(m[i])], 0);
    EXPECT_EQ(run.v.map[static_cast<uint8_t>(v[i])], 0);
  }
  EXPECT_EQ(values(run.m.absmax)[1], 0);
  EXPECT_EQ(values(run.v.absmax)[1], 0);
  EXPECT_GT(values(run.v.absmax)[3], 0);
}

// The squares of small gradients are so small that their inverse is infinite.
TEST_P(AdamW8bit, TheSmallestMomentsAreKept) {
  const int64_t n = 300;
  const Trained run = make_trained(q_, zeros(DType::f32, {n}), {}, n);
  const Buffer g = of(DType::f32, {n}, Values(idx(n), 1e-21));
  adamw8bit(q_, run.operands(g, {}), run.scales(), {.lr = 0.1f, .weight_decay = 0});
  for (const double code : values(run.v.codes)) EXPECT_EQ(code, 255);
  for (const double w : values(run.w)) EXPECT_TRUE(std::isfinite(w));
}

// The trainer lets no such gradient through; what happens must still be defined.
TEST_P(AdamW8bit, NanAndInfinityAreContainedInTheirBlock) {
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    const int64_t n = 600;
    const Trained run = make_trained(q_, zeros(DType::f32, {n}), {}, n);
    Values gradient = normal_values(n, 2);
    gradient[300] = bad;
    const Buffer g = of(DType::f32, {n}, gradient);
    for (int step = 1; step <= 2; ++step)
      adamw8bit(q_, run.operands(g, {}), run.scales(), {.step = step});
    const Values w = values(run.w);
    for (size_t i = 0; i < w.size(); ++i) EXPECT_TRUE(i / 256 == 1 || std::isfinite(w[i])) << i;
  }
}

TEST_P(AdamW8bit, IsTheSameForAnyNumberOfThreads) {
  expect_same_for_any_threads([&] {
    const int64_t n = 100'003;
    const Trained run = make_trained(q_, of(DType::bf16, {n}, normal_values(n, 3)), {}, n);
    const Buffer g = of(DType::bf16, {n}, normal_values(n, 4));
    for (int step = 1; step <= 3; ++step)
      adamw8bit(q_, run.operands(g, {}), run.scales(), {.step = step});
    Values all = values(run.w);
    for (const Tensor& t : {*run.m.codes, *run.v.codes, *run.m.absmax, *run.v.absmax}) {
      const Values more = values(t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
}

// Moments that f32 has exactly, so that every device must give the same codes.
TEST_P(AdamW8bit, CodesAreTheNearestBitForBit) {
  const ExactSubnormals as_the_op;
  const int64_t n = 70'000;
  for (const double size : {1.0, 0x1p-55}) {  // whose squares are lifted
    const Trained run = make_trained(q_, zeros(DType::f32, {n}), {}, n);
    const Buffer g = random(DType::bf16, {n}, size);
    adamw8bit(q_, run.operands(g, {}), run.scales(), {.beta1 = 0.5f, .beta2 = 0.5f});
    Values m = values(g), v = m;
    for (size_t i = 0; i < m.size(); ++i) {
      m[i] *= 0.5;
      v[i] *= m[i];
    }
    for (const auto& [moment, exact] : {std::pair(&run.m, &m), std::pair(&run.v, &v)}) {
      const Values codes = values(moment->codes), absmax = values(moment->absmax);
      for (size_t b = 0; b < absmax.size(); ++b) {
        const size_t begin = 256 * b, end = std::min(exact->size(), begin + 256);
        double most = 0;
        for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs((*exact)[i]));
        ASSERT_EQ(absmax[b], most) << b;
        const float lift = most < 0x1p-100 ? 0x1p100f : 1;
        const float inverse = 1 / (static_cast<float>(most) * lift);
        for (size_t i = begin; i < end; ++i) {
          const float scaled = static_cast<float>((*exact)[i]) * lift * inverse;
          ASSERT_EQ(codes[i], moment->map.nearest(scaled)) << i;
        }
      }
    }
  }
}

// One parameter's tensors, each of which begins `offset` values into its buffer.
class Laid {
 public:
  Laid(Queue& q, int64_t n, uint64_t kind, int64_t offset) {
    // All f32, all bf16, a master beside a narrow weight, a wide gradient beside one.
    const DType weight = kind % 4 == 0 ? DType::f32 : DType::bf16;
    const DType grad = kind % 4 == 1 ? DType::bf16 : DType::f32;
    const auto make = [&](DType type, int64_t count, uint64_t seed, double std) {
      Values v = normal_values(count, 10 * kind + seed, std);
      v.insert(v.begin(), idx(offset), 0.0);
      buffers_.push_back(buffer_of(q, type, {count + offset}, v));
      auto* const address = static_cast<std::byte*>(buffers_.back()->raw());
      return Tensor(address + offset * size_of(type), type, {count});
    };
    const int64_t blocks = adamw8bit_blocks(n);
    p_ = {.operands = {.weight = make(weight, n, 0, 1),
                       .master = kind % 4 == 2 ? make(DType::f32, n, 0, 1) : Tensor(),
                       .grad = make(grad, n, 1, 1),
                       .m = make(DType::u8, n, 0, 0),
                       .v = make(DType::u8, n, 0, 0),
                       .grad_scale = {}},
          .absmax = {.m = make(DType::f32, blocks, 0, 0), .v = make(DType::f32, blocks, 0, 0)},
          .step = {.lr = 0.01f, .weight_decay = kind % 3 == 0 ? 0.0f : 0.1f}};
    if (weight == DType::bf16 && kind % 4 != 2)
      p_.operands.rounding = Rng({.seed = kind, .site = site::rounding});
  }
  AdamW8bitParameter at(int64_t step) const {
    AdamW8bitParameter p = p_;
    p.step.step = step;
    return p;
  }
  void update(Queue& q, int64_t step) const {
    const AdamW8bitParameter p = at(step);
    adamw8bit(q, p.operands, p.absmax, p.step);
  }
  Values state(Queue& q) const {
    Values all;
    for (const Tensor& t : {p_.operands.weight, p_.operands.master, p_.operands.m, p_.operands.v,
                            p_.absmax.m, p_.absmax.v}) {
      if (!t) continue;
      const Values more = values_of(q, t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

 private:
  std::vector<Buffer> buffers_;
  AdamW8bitParameter p_;
};

TEST_P(AdamW8bit, ManyParametersAtOnceEqualACallForEachBitForBit) {
  constexpr int64_t kSizes[] = {1, 8, 255, 4096, 65'536, 65'544, 70'001};
  std::vector<Laid> alone, together;
  // More than go with one launch.
  for (uint64_t i = 0; i < 150; ++i) {
    const int64_t n = kSizes[i < 14 ? (i + i / 7) % 7 : i % 4], offset = i % 5 == 4 ? 1 : 0;
    alone.emplace_back(q_, n, i, offset);
    together.emplace_back(q_, n, i, offset);
  }
  for (int64_t step = 1; step <= 2; ++step) {
    std::vector<AdamW8bitParameter> all;
    for (const Laid& laid : together) all.push_back(laid.at(step));
    adamw8bit(q_, all);
    for (const Laid& laid : alone) laid.update(q_, step);
  }
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(together[i].state(q_) == alone[i].state(q_), true) << i;
}

TEST_P(AdamW8bit, WhereTensorsBeginDoesNotMatter) {
  for (const int64_t n : {8, 1001, 65'544})
    for (uint64_t kind = 0; kind < 4; ++kind) {
      const Laid at_once(q_, n, kind, 0), later(q_, n, kind, 1), at_a_pack(q_, n, kind, 8);
      for (int64_t step = 1; step <= 2; ++step)
        for (const Laid* laid : {&at_once, &later, &at_a_pack}) laid->update(q_, step);
      const Values expected = at_once.state(q_);
      EXPECT_EQ(later.state(q_) == expected, true) << n << " values of kind " << kind;
      EXPECT_EQ(at_a_pack.state(q_) == expected, true) << n << " values of kind " << kind;
    }
}

TEST(AdamW8bitContract, OnSimItCostsTheSame) {
  expect_same_on_sim([](Queue& q) {
    const auto make = [&](DType type, int64_t n) {
      return q.arena().make(Category::data, type, {n}, "operand");
    };
    const Buffer w = make(DType::f32, 5000), g = make(DType::f32, 5000);
    const Buffer m = make(DType::u8, 5000), v = make(DType::u8, 5000);
    const Buffer m_absmax = make(DType::f32, 20), v_absmax = make(DType::f32, 20);
    adamw8bit(q, {w, {}, g, m, v, {}}, {m_absmax, v_absmax}, {});
    copy(q, m, v);
  });
}

TEST_P(AdamW8bit, RefusesOtherTypesAndLengths) {
  const Trained run = make_trained(q_, zeros(DType::f32, {500}), {}, 500);
  const Buffer g = zeros(DType::f32, {500}), three = zeros(DType::f32, {3});
  const OptimizerOperands good = run.operands(g, {});
  OptimizerOperands wide = good;
  wide.m = *g;
  expect_bug("adamw8bit", [&] { adamw8bit(q_, wide, run.scales(), {}); });
  expect_bug("adamw8bit", [&] { adamw8bit(q_, good, {three, three}, {}); });
  expect_bug("adamw8bit", [&] { adamw8bit(q_, good, run.scales(), {.step = 0}); });
  expect_bug("adamw8bit", [&] { adamw8bit(q_, good, {}, {}); });
}

TEST_P(AdamW8bit, CopyIsBitForBitForEveryType) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
    const Buffer x = empty(type, {77, 1001}), y = zeros(type, {77, 1001});
    copy(q_, y, x);
    std::vector<std::byte> from(idx(x->nbytes())), to(from.size());
    q_.download(from.data(), x);
    q_.download(to.data(), y);
    EXPECT_EQ(from == to, true) << name_of(type);
  }
  expect_bug("copy", [&] { copy(q_, zeros(DType::f32, {2}), zeros(DType::bf16, {2})); });
}

// The table finds what a search among the middles finds: at every middle, beside it, and between.
TEST(DynamicMap, FindsTheNearest) {
  for (const DynamicMap* map : {&DynamicMap::with_sign(), &DynamicMap::without_sign()}) {
    const auto& v = map->values();
    EXPECT_TRUE(std::is_sorted(v.begin(), v.end()));
    EXPECT_EQ(v[255], 1);
    EXPECT_EQ((*map)[map->nearest(0)], 0);
    EXPECT_EQ((*map)[map->nearest(-0.0f)], 0);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(map->nearest(v[i]), i);
    for (size_t i = 0; i + 1 < 256; ++i) {
      const float middle = (v[i] + v[i + 1]) / 2;
      EXPECT_EQ(map->nearest(middle), i) << "halfway goes to the lower";
      EXPECT_EQ(map->nearest(std::nextafter(middle, -2.0f)), i);
      EXPECT_EQ(map->nearest(std::nextafter(middle, 2.0f)), i + 1);
    }
    const Rng rng({.seed = 1});
    for (uint64_t k = 0; k < 100'000; ++k) {
      const auto x = static_cast<float>((2 * double{rng.uniform(2 * k)} - 1) *
                                        std::pow(10.0, -8 * double{rng.uniform(2 * k + 1)}));
      size_t best = 0;
      for (size_t i = 0; i + 1 < 256; ++i) best += x > (v[i] + v[i + 1]) / 2 ? 1 : 0;
      ASSERT_EQ(map->nearest(x), best) << x;
    }
  }
}

// The GPU's table finds what the CPU's does.
template <bool kSign>
void expect_same_codes(const DynamicMap& map) {
  static constexpr auto kCells = cuda::make_dynamic_cells<kSign>();
  EXPECT_EQ(std::memcmp(kCells.values, map.values().data(), sizeof kCells.values), 0);
  const auto expect_same = [&](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    const uint32_t found = kCells.find(bits & 0x7fffffff, bits < 0 ? -1 : 0);
    ASSERT_EQ(found >> 16, map.nearest(x)) << x;
  };
  for (size_t i = 0; i + 1 < 256; ++i) {
    const float middle = (map.values()[i] + map.values()[i + 1]) / 2;
    for (const float x :
         {map.values()[i], middle, std::nextafter(middle, -2.0f), std::nextafter(middle, 2.0f)})
      expect_same(x);
  }
  for (const float x : {0.0f, 1e-45f, 1.0f}) expect_same(x);
  if (kSign)
    for (const float x : {-0.0f, -1e-45f, -1.0f}) expect_same(x);
  // Both ends of every cell, and what is in between.
  for (int32_t bits = 0x33000000; bits < 0x3f800000; bits += 0x10000) {
    const auto within = static_cast<int32_t>(Rng({.seed = 2}).half(static_cast<uint64_t>(bits)));
    for (const int32_t more : {0, within, 0xffff}) {
      const auto x = std::bit_cast<float>(bits + more);
      expect_same(x);
      if (kSign) expect_same(-x);
    }
  }
}
TEST(DynamicCells, FindWhatTheCpuFinds) {
  expect_same_codes<true>(DynamicMap::with_sign());
  expect_same_codes<false>(DynamicMap::without_sign());
}

}  // namespace
}  // namespace capstan::test
