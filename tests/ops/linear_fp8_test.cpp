#include "ops/linear_fp8.h"

#include <limits>
#include <ostream>

#include "base/fp8.h"
#include "ops/cuda/product/linear_fp8.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

const std::vector<DType> kFp8Types = {DType::f32, DType::bf16};  // beside FP8

class LinearFp8 : public OnEveryFp8Device {
 protected:
  // max |x| and max |w|, NaN where there is one: what the forward pass leaves for the backward one.
  Buffer amax_of(const Tensor& x, const Tensor& w) {
    Values most;
    for (const Tensor& m : {x, w}) {
      double top = 0;
      for (const double v : values(m))
        if (std::isnan(v) || std::abs(v) > top) top = std::abs(v);
      most.push_back(top);
    }
    return of(DType::f32, {2}, most);
  }
  void forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b) {
    linear_fp8(q_, y, x, w, b, empty(DType::f32, {2}));
  }
  void backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                const Tensor& x, const Tensor& w, Write mode) {
    linear_fp8_backward(q_, dx, dw, db, dy, x, w, amax_of(x, w), mode);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, LinearFp8, testing::ValuesIn(devices_present()), device_name);

struct Size {
  int64_t T, O, I;
};
std::ostream& operator<<(std::ostream& to, const Size& s) {
  return to << "T=" << s.T << " O=" << s.O << " I=" << s.I;
}
// The last has several tiles of each kind, and ends within them.
const std::vector<Size> kSizes = {{1, 16, 16},  {3, 32, 48},   {16, 48, 32},
                                  {33, 96, 80}, {100, 16, 64}, {257, 272, 144}};

// All numbers of a format from 0 on, from its definition: `mantissa` bits after the point, and the
// lowest exponent's step below the first of them.
Values magnitudes(Fp8 format) {
  const int mantissa = format == Fp8::e4m3 ? 3 : 2, lowest = format == Fp8::e4m3 ? -6 : -14;
  Values all;
  for (int i = 0; i < 1 << mantissa; ++i) all.push_back(std::ldexp(i, lowest - mantissa));
  for (int exponent = lowest; all.back() < double{largest(format)}; ++exponent)
    for (int i = 0; i < 1 << mantissa && all.back() < double{largest(format)}; ++i)
      all.push_back(std::ldexp((1 << mantissa) + i, exponent - mantissa));
  return all;
}

// A factor as the contract has it. The numbers of a format alternate between even and odd.
Values quantized(Fp8 format, const Values& m) {
  const Values grid = magnitudes(format);
  float amax = 0;
  for (const double x : m) amax = std::max(amax, static_cast<float>(std::abs(x)));
  const float scale = amax > 0 ? largest(format) / amax : 1.0f;
  Values result;
  for (const double x : m) {
    const double size = std::min(double{static_cast<float>(std::abs(x)) * scale}, grid.back());
    const auto above = std::lower_bound(grid.begin(), grid.end(), size);
    double nearest = *above;
    if (above != grid.begin()) {
      const double up = *above - size, down = size - above[-1];
      const bool above_is_odd = (above - grid.begin()) % 2 != 0;
      if (down < up || (down == up && above_is_odd)) nearest = above[-1];
    }
    result.push_back(std::copysign(nearest, x) / double{scale});
  }
  return result;
}

// Tensor cores add with fewer digits than f32.
double sums_tolerance(Device device, DType out, int64_t terms) {
  return tolerance(out, terms) + (device == Device::cuda ? 0x1p-9 : 0);
}

void add(Values& to, const Values& more) {
  ASSERT_EQ(to.size(), more.size());
  for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

TEST_P(LinearFp8, MatchesF64OfRoundedFactors) {
  for (const DType dtype : kFp8Types)
    for (const Size& s : kSizes)
      for (const bool bias : {false, true}) {
        const Buffer x = random(dtype, {s.T, s.I}, 3), w = random(dtype, {s.O, s.I}, 0.02);
        const Buffer b = random(dtype, {s.O}), y = empty(dtype, {s.T, s.O});
        forward(y, x, w, bias ? *b : Tensor());
        Values expected = product_f64(s.T, s.O, s.I, quantized(Fp8::e4m3, values(x)), false,
                                      quantized(Fp8::e4m3, values(w)), true);
        const Values b64 = values(b);
        for (size_t i = 0; bias && i < expected.size(); ++i) expected[i] += b64[i % idx(s.O)];
        EXPECT_LT(error(values(y), expected), sums_tolerance(GetParam(), dtype, s.I))
            << name_of(dtype) << ' ' << s << " bias " << bias;
      }
}

TEST_P(LinearFp8, FindsTheLargestMagnitudes) {
  for (const DType dtype : kFp8Types)
    for (const Size& s : kSizes)
      for (const int64_t gap : {0, 3}) {
        const Buffer wide_x = random(dtype, {s.T, s.I + gap}), w = random(dtype, {s.O, s.I}, 1e-9);
        const Tensor x = wide_x->cols(gap, s.I);
        const Buffer amax = empty(DType::f32, {2});
        linear_fp8(q_, empty(dtype, {s.T, s.O}), x, w, {}, amax);
        EXPECT_EQ(values(amax), values(amax_of(x, w))) << name_of(dtype) << ' ' << s;
      }
}

TEST_P(LinearFp8, GradientsMatchF64OfRoundedFactors) {
  for (const DType dtype : kFp8Types)
    for (const Size& s : kSizes)
      for (const Write mode : {Write::replace, Write::add}) {
        const Buffer x = random(dtype, {s.T, s.I}, 3), w = random(dtype, {s.O, s.I}, 0.02);
        const Buffer dy = random(dtype, {s.T, s.O}, 1e-4), dx = empty(dtype, {s.T, s.I});
        const bool adds = mode == Write::add;
        const Buffer dw =
            adds ? random(DType::f32, {s.O, s.I}, 1e-3) : empty(DType::f32, {s.O, s.I});
        const Buffer db = zeros(DType::f32, {s.O});
        const Values before = adds ? values(dw) : Values(idx(s.O * s.I), 0.0);
        backward(dx, dw, db, dy, x, w, mode);
        const Values dy8 = quantized(Fp8::e5m2, values(dy));
        const Values w8 = quantized(Fp8::e4m3, values(w)), x8 = quantized(Fp8::e4m3, values(x));
        EXPECT_LT(error(values(dx), product_f64(s.T, s.I, s.O, dy8, false, w8, false)),
                  sums_tolerance(GetParam(), dtype, s.O))
            << name_of(dtype) << ' ' << s;
        Values dw64 = product_f64(s.O, s.I, s.T, dy8, true, x8, false);
        add(dw64, before);
        EXPECT_LT(error(values(dw), dw64), sums_tolerance(GetParam(), DType::f32, s.T))
            << name_of(dtype) << ' ' << s << " add " << adds;
        const Values ones(idx(s.T), 1.0);
        EXPECT_LT(error(values(db), product_f64(1, s.O, s.T, ones, false, values(dy), false)),
                  tolerance(DType::f32, s.T));
      }
}

// Sums of thousands of terms: those of gradients go into f32 on the way, those of a forward pass
// stay in tensor cores, with an error that grows.
TEST_P(LinearFp8, LongSumsStayNear) {
  const bool cuda = GetParam() == Device::cuda;
  const int64_t few = 32, many = 4096;
  const Buffer x = random(DType::bf16, {few, many}), w = random(DType::bf16, {few, many});
  const Buffer y = empty(DType::f32, {few, few});
  forward(y, x, w, {});
  const Values x8 = quantized(Fp8::e4m3, values(x)), w8 = quantized(Fp8::e4m3, values(w));
  EXPECT_LT(error(values(y), product_f64(few, few, many, x8, false, w8, true)),
            cuda ? 0x1p-5 : tolerance(DType::f32, many));

  const Buffer tall_x = random(DType::bf16, {many, few}), dy = random(DType::bf16, {many, few});
  const Buffer small_w = random(DType::bf16, {few, few}), dw = empty(DType::f32, {few, few});
  backward({}, dw, {}, dy, tall_x, small_w, Write::replace);
  EXPECT_LT(error(values(dw), product_f64(few, few, many, quantized(Fp8::e5m2, values(dy)), true,
                                          quantized(Fp8::e4m3, values(tall_x)), false)),
            cuda ? 0x1p-7 : tolerance(DType::f32, many));
}

// 0, ±1 and ±1.75, of which 1.75 comes up: then every scale is a power of two, every factor is
// exact, and sums need so few digits that all devices give the same bits.
Values exact_values(int64_t n, int64_t seed) {
  constexpr double kChoice[] = {0, 0, 1, 0, -1, 0, 0, 1.75, 0, -1.75, 0};
  Values v(idx(n));
  for (int64_t i = 0; i < n; ++i) v[idx(i)] = kChoice[(i * i + 3 * i + seed * (i % 7)) % 11];
  v[0] = 1.75;
  return v;
}

TEST_P(LinearFp8, ExactFactorsGiveExactProducts) {
  for (const DType dtype : kFp8Types)
    for (const Size& s : kSizes) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << s);
      const Values x64 = exact_values(s.T * s.I, 1), w64 = exact_values(s.O * s.I, 2),
                   dy64 = exact_values(s.T * s.O, 3);
      const Buffer x = of(dtype, {s.T, s.I}, x64), w = of(dtype, {s.O, s.I}, w64);
      const Buffer dy = of(dtype, {s.T, s.O}, dy64);
      const Buffer y = empty(DType::f32, {s.T, s.O}), dx = empty(DType::f32, {s.T, s.I});
      const Buffer dw = empty(DType::f32, {s.O, s.I});
      forward(y, x, w, {});
      backward(dx, dw, {}, dy, x, w, Write::replace);
      EXPECT_EQ(values(y), product_f64(s.T, s.O, s.I, x64, false, w64, true));
      EXPECT_EQ(values(dx), product_f64(s.T, s.I, s.O, dy64, false, w64, false));
      EXPECT_EQ(values(dw), product_f64(s.O, s.I, s.T, dy64, true, x64, false));
    }
}

// What FP8 costs: three bits after the point leave errors of 2^-5 in a factor, two 2^-4, and over
// many terms the directions stay.
TEST_P(LinearFp8, DirectionsAreThoseOfTheExactProducts) {
  const int64_t T = 128, O = 96, I = 112;
  const Buffer x = random(DType::bf16, {T, I}, 2), w = random(DType::bf16, {O, I}, 0.05);
  const Buffer dy = random(DType::bf16, {T, O}, 1e-6);
  const Buffer y = empty(DType::f32, {T, O}), dx = empty(DType::f32, {T, I});
  const Buffer dw = zeros(DType::f32, {O, I});
  forward(y, x, w, {});
  backward(dx, dw, {}, dy, x, w, Write::add);
  const auto expect_along = [](const Values& found, const Values& exact, double most) {
    EXPECT_GT(dot(found, exact) / (norm(found) * norm(exact)), 1 - most);
    EXPECT_GT(error(found, exact), 0.01) << "nothing was rounded";
  };
  expect_along(values(y), product_f64(T, O, I, values(x), false, values(w), true), 0.002);
  expect_along(values(dx), product_f64(T, I, O, values(dy), false, values(w), false), 0.005);
  expect_along(values(dw), product_f64(O, I, T, values(dy), true, values(x), false), 0.005);
}

TEST_P(LinearFp8, NothingThatIsNotFiniteIsHidden) {
  const int64_t T = 20, O = 32, I = 16;
  const double infinity = INFINITY;
  const auto all_nan = [&](const Tensor& t) {
    const Values v = values(t);
    return std::all_of(v.begin(), v.end(), [](double x) { return std::isnan(x); });
  };
  for (const DType dtype : kFp8Types)
    for (const double bad : {double{NAN}, infinity, -infinity}) {
      Values spoiled = normal_values(T * I, 5), spoiled_w = normal_values(O * I, 6),
             spoiled_dy = normal_values(T * O, 7);
      const Buffer x = of(dtype, {T, I}, spoiled), w = of(dtype, {O, I}, spoiled_w);
      const Buffer dy = of(dtype, {T, O}, spoiled_dy);
      spoiled.back() = spoiled_w[3] = spoiled_dy[idx(O)] = bad;
      const Buffer bad_x = of(dtype, {T, I}, spoiled), bad_w = of(dtype, {O, I}, spoiled_w);
      const Buffer bad_dy = of(dtype, {T, O}, spoiled_dy);
      const Buffer y = zeros(dtype, {T, O}), dx = zeros(dtype, {T, I});
      const Buffer dw = zeros(DType::f32, {O, I});
      forward(y, bad_x, w, {});
      EXPECT_TRUE(all_nan(y)) << bad;
      forward(y, x, bad_w, {});
      EXPECT_TRUE(all_nan(y)) << bad;
      backward(dx, dw, {}, bad_dy, x, w, Write::replace);
      EXPECT_TRUE(all_nan(dx) && all_nan(dw)) << bad;
      backward(dx, dw, {}, dy, bad_x, w, Write::replace);
      EXPECT_TRUE(all_nan(dw)) << bad;
      EXPECT_FALSE(all_nan(dx)) << bad;
      backward(dx, dw, {}, dy, x, bad_w, Write::replace);
      EXPECT_TRUE(all_nan(dx)) << bad;
      EXPECT_FALSE(all_nan(dw)) << bad;
    }
}

TEST_P(LinearFp8, ZerosAndTinyValuesAreNumbers) {
  const int64_t T = 17, O = 16, I = 32;
  const Buffer w = random(DType::bf16, {O, I}), nothing = zeros(DType::bf16, {T, I});
  const Buffer b = random(DType::bf16, {O}), y = empty(DType::bf16, {T, O});
  forward(y, nothing, w, b);
  for (int64_t t = 0; t < T; ++t) EXPECT_EQ(values(y->rows(t, 1)), values(b));
  const Buffer tiny = of(DType::f32, {T, I}, Values(idx(T * I), 1e-39)),
               y32 = empty(DType::f32, {T, O});
  forward(y32, tiny, w, {});
  for (const double v : values(y32)) EXPECT_LT(std::abs(v), 1e-36);
}

TEST_P(LinearFp8, RowsMayHaveStridesAndDxMayBeX) {
  const int64_t T = 33, O = 48, I = 32;
  for (const DType dtype : kFp8Types)
    for (const int64_t gap : {3, 16}) {  // unaligned rows go another way
      const Buffer x = random(dtype, {T, I + gap}), dy = random(dtype, {T, 2 * O + gap});
      const Buffer w = random(dtype, {O, I});
      const Tensor x_view = x->cols(gap, I), dy_view = dy->cols(O, O);
      const Buffer x_dense = of(dtype, {T, I}, values(x_view));
      const Buffer dy_dense = of(dtype, {T, O}, values(dy_view));
      const Buffer y = empty(dtype, {T, O}), dx = empty(dtype, {T, I});
      const Buffer y_dense = empty(dtype, {T, O});
      const Buffer dw = empty(DType::f32, {O, I}), dw_dense = empty(DType::f32, {O, I});
      forward(y, x_view, w, {});
      forward(y_dense, x_dense, w, {});
      EXPECT_EQ(values(y), values(y_dense));
      backward(dx, dw, {}, dy_view, x_view, w, Write::replace);
      backward(x_dense, dw_dense, {}, dy_dense, x_dense, w, Write::replace);
      EXPECT_EQ(values(dw), values(dw_dense));
      EXPECT_EQ(values(dx), values(x_dense));
    }
}

TEST_P(LinearFp8, DxNeedNotBeWanted) {
  const Buffer x = random(DType::bf16, {33, 32}), w = random(DType::bf16, {48, 32});
  const Buffer dy = random(DType::bf16, {33, 48}), dx = empty(DType::bf16, {33, 32});
  const Buffer with = zeros(DType::f32, {48, 32}), without = zeros(DType::f32, {48, 32});
  backward(dx, with, {}, dy, x, w, Write::add);
  backward({}, without, {}, dy, x, w, Write::add);
  EXPECT_EQ(values(with), values(without));
}

TEST_P(LinearFp8, OtherShapesAreThePlainProducts) {
  for (const Size& s : {Size{33, 20, 32}, {33, 32, 31}, {0, 32, 32}}) {
    const Buffer x = random(DType::bf16, {s.T, s.I}), w = random(DType::bf16, {s.O, s.I});
    const Buffer dy = random(DType::bf16, {s.T, s.O}), b = random(DType::bf16, {s.O});
    const Buffer y = empty(DType::bf16, {s.T, s.O}), y_plain = empty(DType::bf16, {s.T, s.O});
    const Buffer dx = empty(DType::bf16, {s.T, s.I}), dx_plain = empty(DType::bf16, {s.T, s.I});
    const Buffer dw = random(DType::f32, {s.O, s.I});
    const Buffer dw_plain = of(DType::f32, {s.O, s.I}, values(dw));
    forward(y, x, w, b);
    linear(q_, y_plain, x, w, b);
    EXPECT_EQ(values(y), values(y_plain)) << s;
    backward(dx, dw, {}, dy, x, w, Write::add);
    linear_backward_weight(q_, dw_plain, {}, dy, x);
    linear_backward_data(q_, dx_plain, dy, w);
    EXPECT_EQ(values(dw), values(dw_plain)) << s;
    EXPECT_EQ(values(dx), values(dx_plain)) << s;
  }
}

// A forward and a backward pass in memory that is planned: recording a graph allocates nothing.
struct Pass {
  static constexpr int64_t T = 48, O = 64, I = 32;
  Queue& q;
  Buffer x, w, y, dy, dx, dw, amax;

  explicit Pass(Queue& queue)
      : q(queue),
        x(make(DType::bf16, {T, I})),
        w(make(DType::bf16, {O, I})),
        y(make(DType::bf16, {T, O})),
        dy(make(DType::bf16, {T, O})),
        dx(make(DType::bf16, {T, I})),
        dw(make(DType::f32, {O, I})),
        amax(make(DType::f32, {2})) {}
  Buffer make(DType type, const Shape& shape) const {
    return q.arena().make(Category::data, type, shape, "test");
  }
  void put(const Tensor& to, uint64_t seed, double size) const {
    std::vector<bf16> v;
    for (const double value : normal_values(to.numel(), seed, size))
      v.emplace_back(static_cast<float>(value));
    q.upload(to, v.data());
  }
  std::vector<Values> results(double size, bool graph) const {
    put(x, 1, size);
    put(w, 2, 1 / size);
    put(dy, 3, size * size);
    const auto phase = q.arena().phase("pass");
    const auto compute = [&] {
      linear_fp8(q, y, x, w, {}, amax);
      linear_fp8_backward(q, dx, dw, {}, dy, x, w, amax, Write::replace);
    };
    if (graph)
      q.graph({T}, compute);
    else
      compute();
    return {values_of(q, y), values_of(q, dx), values_of(q, dw)};
  }
};

// The first time op by op, the second recorded, then replayed.
TEST_P(LinearFp8, AGraphScalesByWhatIsThereWhenItIsLaunched) {
  Arena notes;
  Queue imagined(Device::sim, notes, {.device = GetParam()});
  Pass(imagined).results(1, true);
  Arena arena(notes.plan(), GetParam());
  Queue q(GetParam(), arena);
  const Pass pass(q);
  for (const double size : {1.0, 1000.0, 1e-3, 30.0, 1.0}) {
    const auto found = pass.results(size, true);
    EXPECT_EQ(found, pass.results(size, false)) << size;
    for (const Values& v : found) EXPECT_GT(norm(v), 0) << size;
  }
}

TEST_P(LinearFp8, TwoCallsAreBitwiseEqual) {
  const int64_t T = 257, O = 272, I = 144;
  const Buffer x = random(DType::bf16, {T, I}), w = random(DType::bf16, {O, I});
  const Buffer dy = random(DType::bf16, {T, O});
  const auto compute = [&] {
    const Buffer y = empty(DType::bf16, {T, O}), dx = empty(DType::bf16, {T, I});
    const Buffer dw = zeros(DType::f32, {O, I});
    forward(y, x, w, {});
    backward(dx, dw, {}, dy, x, w, Write::add);
    return std::vector<Values>{values(y), values(dx), values(dw)};
  };
  EXPECT_EQ(compute(), compute());
}

TEST_P(LinearFp8, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {3, 16}), w = random(DType::f32, {32, 16});
  const Buffer y = random(DType::f32, {3, 32}), b = random(DType::f32, {32});
  const Buffer amax = amax_of(x, w);
  const Buffer wide = random(DType::f32, {3, 64}), ids = empty(DType::i32, {3, 16});
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y, x, x, b, amax); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y->rows(0, 2), x, w, b, amax); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, wide->cols(0, 32), x, w, b, amax); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y, ids, w, b, amax); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y, x, w, x, amax); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y, x, w, b, {}); });
  expect_bug("linear_fp8", [&] { linear_fp8(q_, y, x, w, b, b); });
  const auto gradients = [&](const Tensor& dx, const Tensor& dw, const Tensor& dy) {
    linear_fp8_backward(q_, dx, dw, {}, dy, x, w, amax, Write::add);
  };
  expect_bug("linear_fp8_backward", [&] { gradients(x, {}, y); });
  expect_bug("linear_fp8_backward", [&] { gradients(y, w, y); });
  expect_bug("linear_fp8_backward", [&] { gradients(x, x, y); });
  expect_bug("linear_fp8_backward", [&] { gradients(x, w, x); });
}

TEST(LinearFp8OnSim, MoreTokensNeverNeedLessScratch) {
  const Tensor w(nullptr, DType::bf16, {64, 48});
  int64_t before = 0, before_backward = 0, strides = 0;
  for (int64_t T = 1; T < 5000; ++T) {
    const Tensor x(nullptr, DType::bf16, {T, 48}), dy(nullptr, DType::bf16, {T, 64});
    const int64_t rows = cuda::turned_rows(T), stride = cuda::turned_stride(T);
    EXPECT_TRUE(rows >= T && rows < T + 16 && rows % 16 == 0) << T;
    EXPECT_TRUE(stride >= rows && stride <= rows + rows / 8 && stride % 16 == 0) << T;
    strides += stride != cuda::turned_stride(T - 1);
    EXPECT_GE(cuda::linear_fp8_scratch(x, w), before);
    EXPECT_GE(cuda::linear_fp8_backward_scratch(x, dy, x), before_backward);
    before = cuda::linear_fp8_scratch(x, w);
    before_backward = cuda::linear_fp8_backward_scratch(x, dy, x);
  }
  EXPECT_LT(strides, 60) << "each of them is measured on its own";
}

TEST(LinearFp8OnSim, CostsAndScratchAgree) {
  for (const DType dtype : kFp8Types)
    expect_same_on_sim([&](Queue& q) {
      const auto phase = q.arena().phase("ops");
      const auto make = [&](const Shape& s) { return buffer_of(q, dtype, s, Values(2000)); };
      const Buffer x = make({17, 32}), w = make({48, 32}), y = make({17, 48}), b = make({48});
      const Buffer amax = buffer_of(q, DType::f32, {2}, {1, 1});
      linear_fp8(q, y, x, w, b, amax);
      linear_fp8_backward(q, x, w, b, y, x, w, amax, Write::add);
      linear_fp8_backward(q, {}, w, {}, y, x, w, amax, Write::replace);
    });
}

}  // namespace
}  // namespace capstan::test
