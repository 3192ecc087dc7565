#include "ops/quantize.h"

#include "ops/elementwise.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

constexpr std::array kKinds = {Quantize::nf4, Quantize::nf4_dq, Quantize::fp4, Quantize::fp4_dq,
                               Quantize::int8};

class Quantized : public OnEveryDevice {
 protected:
  // A matrix of parts of these rows, and the buffers that it lives in.
  QuantizedMatrix make(Quantize kind, std::vector<int64_t> rows, int64_t cols) {
    QuantizedMatrix m;
    m.kind = kind;
    int64_t first = 0;
    for (const int64_t n : rows) {
      const QuantizedSizes s = quantized_sizes(kind, n, cols);
      QuantizedPart& p = m.parts[idx(m.count++)];
      p.first_row = first;
      p.rows = n;
      p.packed = keep(empty(DType::u8, {s.packed}));
      p.absmax = keep(empty(s.absmax_type, {s.absmax}));
      if (s.scale > 0) p.scale = keep(empty(DType::f32, {s.scale}));
      first += n;
    }
    m.shape = {first, cols};
    return m;
  }
  QuantizedMatrix some(Quantize kind, std::vector<int64_t> rows, int64_t cols) {
    const QuantizedMatrix m = make(kind, rows, cols);
    for (size_t p = 0; p < rows.size(); ++p)
      quantize(q_, m, static_cast<int>(p), random(DType::bf16, {rows[p], cols}, 0.05));
    return m;
  }
  Buffer whole(const QuantizedMatrix& m, DType type = DType::f32) {
    Buffer y = empty(type, m.shape);
    dequantize(q_, y, m, 0);
    return y;
  }

 private:
  Tensor keep(Buffer b) {
    kept_.push_back(std::move(b));
    return kept_.back();
  }
  std::vector<Buffer> kept_;
};
INSTANTIATE_TEST_SUITE_P(Ops, Quantized, testing::ValuesIn(devices_present()), device_name);

// The widest gap between neighbouring values, halved, bounds the error of each against the largest
// of its block: 0.15 for nf4, 0.167 for fp4, 1/254 for int8.
TEST_P(Quantized, ValuesStayWithinHalfAStep) {
  for (const Quantize kind : kKinds)
    for (const int64_t cols : {1, 63, 64, 100, 640}) {
      const int64_t rows = 30;
      const Buffer x = random(DType::f32, {rows, cols}, 0.05);
      const QuantizedMatrix m = make(kind, {rows}, cols);
      quantize(q_, m, 0, x);
      const Values before = values(x), after = values(whole(m));
      const double step = kind == Quantize::int8 ? 1 / 253.0 : 0.18;
      for (int64_t i = 0; i < rows * cols; ++i) {
        const int64_t size = kind == Quantize::int8 ? cols : 64, first = i / size * size;
        double most = 0;
        for (int64_t k = first; k < std::min(rows * cols, first + size); ++k)
          most = std::max(most, std::abs(before[idx(k)]));
        ASSERT_NEAR(after[idx(i)], before[idx(i)], step * most) << name_of(kind) << " " << i;
      }
    }
}

TEST_P(Quantized, PartsAreQuantizedOnTheirOwn) {
  for (const Quantize kind : kKinds) {
    const int64_t cols = 37;
    const QuantizedMatrix both = make(kind, {5, 11, 3}, cols);
    Values expected;
    int part = 0;
    for (const int64_t rows : {5, 11, 3}) {
      const Buffer x = random(DType::bf16, {rows, cols});
      const QuantizedMatrix alone = make(kind, {rows}, cols);
      quantize(q_, alone, 0, x);
      quantize(q_, both, part++, x);
      for (const double v : values(whole(alone))) expected.push_back(v);
    }
    EXPECT_EQ(values(whole(both)), expected) << name_of(kind);
    const Buffer rows = empty(DType::f32, {4, cols});
    dequantize(q_, rows, both, 14);  // across parts
    EXPECT_EQ(values(rows), Values(expected.begin() + 14 * cols, expected.begin() + 18 * cols));
  }
}

// A product is that with the dequantized matrix.
TEST_P(Quantized, ProductsMatchTheDequantizedMatrix) {
  for (const Quantize kind : kKinds)
    for (const DType type : kComputeTypes)
      for (const int64_t T : {1, 4, 5, 70, 300})
        for (const int64_t I : {33, 640}) {
          const QuantizedMatrix w = some(kind, {300, 7}, I);
          const int64_t O = w.shape[0];
          const Buffer w32 = whole(w), x = random(type, {T, I}), b = random(type, {O});
          const Buffer y = empty(type, {T, O}), expected = empty(DType::f32, {T, O});
          linear(q_, y, x, w, b);
          linear(q_, expected, x, w32, b);
          EXPECT_LT(error(values(y), values(expected)), tolerance(type, I)) << name_of(kind);

          const Buffer dy = random(type, {T, O}), dx = empty(type, {T, I});
          const Buffer dx_expected = empty(DType::f32, {T, I});
          linear_backward_data(q_, dx, dy, w);
          linear_backward_data(q_, dx_expected, dy, w32);
          EXPECT_LT(error(values(dx), values(dx_expected)), tolerance(type, O)) << name_of(kind);
        }
}

// The matrix is of two chunks on a GPU, and the second term of both.
TEST_P(Quantized, ProductsAddThinTerms) {
  const int64_t I = GetParam() == Device::cuda ? 65536 : 64;
  for (const DType type : kComputeTypes) {
    const QuantizedMatrix w = some(Quantize::nf4, {512, 256}, I);
    const Buffer w32 = whole(w), x = random(type, {140, I}), inner = random(type, {140, 32});
    const Buffer outer = random(type, {768, 16});
    ThinTerms terms;
    terms.add({inner->cols(0, 16), outer->rows(0, 256), 0});
    terms.add({inner->cols(16, 16), outer->rows(256, 512), 256});
    const Buffer y = empty(type, {140, 768}), expected = empty(DType::f32, {140, 768});
    linear(q_, y, x, w, {}, terms);
    linear(q_, expected, x, w32, {}, terms);
    EXPECT_LT(error(values(y), values(expected)), 2 * tolerance(type, I));
  }
}

// As the tensors of a file that is mapped.
TEST_P(Quantized, ValuesMayLieInTheHostsMemory) {
  for (const Quantize kind : kKinds) {
    const Buffer x = random(DType::bf16, {7, 100}, 0.05);
    std::vector<std::byte> bytes(idx(x->nbytes()));
    q_.download(bytes.data(), x);
    const QuantizedMatrix from_device = make(kind, {7}, 100), from_host = make(kind, {7}, 100);
    quantize(q_, from_device, 0, x);
    quantize(q_, from_host, 0, Tensor(bytes.data(), DType::bf16, {7, 100}));
    EXPECT_EQ(values(whole(from_host)), values(whole(from_device))) << name_of(kind);
  }
}

TEST_P(Quantized, ZerosStayZeros) {
  for (const Quantize kind : kKinds) {
    const QuantizedMatrix m = make(kind, {3}, 100);
    quantize(q_, m, 0, zeros(DType::f32, {3, 100}));
    // A block without values has the smallest of scales where it is the last.
    for (const double v : values(whole(m))) EXPECT_LT(std::abs(v), 1e-37) << name_of(kind);
  }
}

TEST_P(Quantized, ANanStaysToBeSeen) {
  for (const Quantize kind : kKinds) {
    Values some(300, 0.5);
    some[70] = NAN;
    const QuantizedMatrix m = make(kind, {3}, 100);
    quantize(q_, m, 0, of(DType::f32, {3, 100}, some));
    EXPECT_TRUE(std::isnan(values(whole(m))[70])) << name_of(kind);
  }
}

TEST_P(Quantized, DoesNotDependOnTheThreads) {
  const Buffer x = random(DType::bf16, {300, 200}, 0.05);
  for (const Quantize kind : kKinds) {
    const QuantizedMatrix m = make(kind, {300}, 200);
    expect_same_for_any_threads([&] {
      quantize(q_, m, 0, x);
      return values(whole(m));
    });
  }
}

TEST(QuantizedSizes, BytesPerParameter) {
  const auto bytes = [](Quantize kind) {
    const int64_t rows = 4096, cols = 4096;
    const QuantizedSizes s = quantized_sizes(kind, rows, cols);
    return static_cast<double>(s.packed + s.absmax * size_of(s.absmax_type) + 4 * s.scale) /
           static_cast<double>(rows * cols);
  };
  EXPECT_EQ(bytes(Quantize::nf4), 0.5625);
  EXPECT_EQ(bytes(Quantize::fp4), 0.5625);
  EXPECT_NEAR(bytes(Quantize::nf4_dq), 0.515869, 1e-6);
  EXPECT_NEAR(bytes(Quantize::int8), 1, 1e-3);
}

TEST(QuantizedNames, AreThoseOfBitsandbytesRecipes) {
  for (const Quantize kind : kKinds) {
    const std::string_view name = name_of(kind);
    EXPECT_TRUE(name.starts_with("bnb.")) << name;
    EXPECT_EQ(value_named<Quantize>(name), kind);
    EXPECT_EQ(value_named<Quantize>(name.substr(4)), kind) << "also without bnb.";
  }
  EXPECT_EQ(value_named<Quantize>("bnb.int8"), Quantize::int8);
  EXPECT_EQ(value_named<Quantize>("none"), Quantize::none);
  EXPECT_EQ(value_named<Quantize>("NF4"), std::nullopt);
}

TEST_P(Quantized, RefusesWrongOperands) {
  QuantizedMatrix m = some(Quantize::nf4, {5}, 64);
  const Buffer x = random(DType::f32, {5, 64}), y = empty(DType::f32, {6, 64});
  expect_bug("quantize", [&] { quantize(q_, m, 1, x); });
  expect_bug("quantize", [&] { quantize(q_, m, 0, y); });
  expect_bug("dequantize", [&] { dequantize(q_, y, m, 0); });
  expect_bug("dequantize", [&] { dequantize(q_, x, m, 1); });
  const Buffer out = empty(DType::f32, {5, 5});
  expect_bug("linear", [&] { linear(q_, out, y, m, {}); });
  expect_bug("linear_backward_data", [&] { linear_backward_data(q_, x, x, m); });
  m.parts[0].absmax = m.parts[0].absmax.rows(0, 1);
  expect_bug("linear", [&] { linear(q_, out, x, m, {}); });
}

}  // namespace
}  // namespace capstan::test
