// Products that are large enough to be measured on a GPU: what holds of them holds on every device.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "ops/linear_fp8.h"
#include "ops/reference.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t O = 2048;

// On a GPU w is as large as it takes to be worth measuring.
int64_t inputs_on(Device device) {
  return device == Device::cuda ? 4096 : 100;
}

Values cheap_values(int64_t n, int64_t seed) {
  Values v(idx(n));
  for (int64_t i = 0; i < n; ++i) v[idx(i)] = double((i * 7919 + seed * 104729) % 2001) / 1000 - 1;
  return v;
}

struct Results {
  Values y, sum, dw;
  bool operator==(const Results&) const = default;
};

// y = x wᵀ, twice added, and the gradient of w added to what is there.
Results compute(Device device, bool tf32 = false, DType type = DType::bf16) {
  const int64_t I = inputs_on(device);
  Arena arena(Arena::Heap{}, device);
  Queue q(device, arena);
  q.allow_tf32(tf32);
  const auto make = [&](const Shape& shape, int64_t seed) {
    return buffer_of(q, type, shape, cheap_values(shape.numel(), seed));
  };
  const Buffer x = make({1, I}, 1), w = make({O, I}, 2), dy = make({1, O}, 3);
  const Buffer y = make({1, O}, 4), sum = make({1, O}, 5), dw = make({O, I}, 6);
  linear(q, y, x, w, {});
  linear(q, sum, x, w, {}, Write::add);
  linear(q, sum, x, w, {}, Write::add);
  linear_backward_weight(q, dw, {}, dy, x);
  return {values_of(q, y), values_of(q, sum), values_of(q, dw)};
}

Results expected(Device device, DType type) {
  const int64_t I = inputs_on(device);
  Arena arena(Arena::Heap{});
  Queue q(Device::cpu, arena);
  const auto rounded = [&](int64_t n, int64_t seed) {
    return values_of(q, buffer_of(q, type, {n}, cheap_values(n, seed)));
  };
  const Values x = rounded(I, 1), w = rounded(O * I, 2), dy = rounded(O, 3);
  Results r{Values(idx(O)), rounded(O, 5), rounded(O * I, 6)};
  for (int64_t o = 0; o < O; ++o)
    for (int64_t i = 0; i < I; ++i) {
      r.y[idx(o)] += x[idx(i)] * w[idx(o * I + i)];
      r.dw[idx(o * I + i)] += dy[idx(o)] * x[idx(i)];
    }
  for (int64_t o = 0; o < O; ++o) r.sum[idx(o)] += 2 * r.y[idx(o)];
  return r;
}

void expect_near(const Results& found, const Results& right, double tolerance) {
  EXPECT_LT(error(found.y, right.y), tolerance);
  EXPECT_LT(error(found.sum, right.sum), 3 * tolerance);
  EXPECT_LT(error(found.dw, right.dw), tolerance);
}

// The one file of products in the folder; nothing where there is none.
fs::path products_in(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".products") return entry.path();
  return {};
}

CAPSTAN_ON_EVERY_DEVICE(Products);

TEST_P(Products, AreRightAndEqualInEveryRunMeasuredOrNot) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  const Variable on("CAPSTAN_MEASURE_PRODUCTS", nullptr);
  const Results first = compute(GetParam()), second = compute(GetParam());
  EXPECT_EQ(first, second) << "the first run measured, the second read what it found";
  expect_near(first, expected(GetParam(), DType::bf16),
              tolerance(DType::bf16, inputs_on(GetParam())));
  EXPECT_EQ(!products_in(folder.path()).empty(), GetParam() == Device::cuda);
}

// y, dx, and the gradient of w as it replaces and as it adds to what is there.
struct Fp8Results {
  Values y, dx, dw, sum;
  bool operator==(const Fp8Results&) const = default;
};

Fp8Results compute_fp8(Device device, const Values& before) {
  const int64_t T = 16, N = device == Device::cuda ? 4096 : 96;
  Arena arena(Arena::Heap{}, device);
  Queue q(device, arena);
  const auto make = [&](DType type, const Shape& shape, int64_t seed) {
    return buffer_of(q, type, shape, cheap_values(shape.numel(), seed));
  };
  const Buffer x = make(DType::bf16, {T, N}, 1), w = make(DType::bf16, {N, N}, 2);
  const Buffer dy = make(DType::bf16, {T, N}, 3), amax = make(DType::f32, {2}, 4);
  const Buffer y = make(DType::bf16, {T, N}, 5), dx = make(DType::bf16, {T, N}, 6);
  const Buffer dw = make(DType::f32, {N, N}, 7), sum = buffer_of(q, DType::f32, {N, N}, before);
  linear_fp8(q, y, x, w, {}, amax);
  // What adds comes first: after what replaces it would not be measured.
  linear_fp8_backward(q, dx, sum, {}, dy, x, w, amax, Write::add);
  linear_fp8_backward(q, dx, dw, {}, dy, x, w, amax, Write::replace);
  return {values_of(q, y), values_of(q, dx), values_of(q, dw), values_of(q, sum)};
}

// Measuring writes the result many times over.
TEST_P(Products, OfFp8AreEqualInEveryRunAndMeasuringLeavesWhatIsAddedTo) {
  const int64_t N = GetParam() == Device::cuda ? 4096 : 96;
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  const Variable on("CAPSTAN_MEASURE_PRODUCTS", nullptr);
  const Values before = cheap_values(N * N, 8);
  const Fp8Results first = compute_fp8(GetParam(), before);
  EXPECT_TRUE(first == compute_fp8(GetParam(), before)) << "the first run measured";
  Values sum = first.dw;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  EXPECT_LT(error(first.sum, sum), 1e-3);
  EXPECT_EQ(!products_in(folder.path()).empty(), GetParam() == Device::cuda);
}

TEST_P(Products, AreMeasuredAgainWhereTheFileIsDamaged) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  const Variable on("CAPSTAN_MEASURE_PRODUCTS", nullptr);
  compute(GetParam());
  const fs::path file = products_in(folder.path());
  if (GetParam() != Device::cuda) GTEST_SKIP() << "this device measures nothing";
  ASSERT_FALSE(file.empty());
  const auto size = fs::file_size(file);
  fs::resize_file(file, size - 1);
  const Results first = compute(GetParam());
  EXPECT_EQ(fs::file_size(file), size);
  EXPECT_EQ(compute(GetParam()), first);
}

TEST_P(Products, AreNotMeasuredWhereTheResultCannotBeKeptOrIsNotWanted) {
  const TempFolder folder;
  folder.write("file", "");
  Results unkept, unwanted;
  {
    const Variable nowhere("CAPSTAN_CACHE", (folder / "file").c_str());
    const Variable on("CAPSTAN_MEASURE_PRODUCTS", nullptr);
    unkept = compute(GetParam());
  }
  {
    const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
    const Variable off("CAPSTAN_MEASURE_PRODUCTS", "0");
    unwanted = compute(GetParam());
  }
  EXPECT_TRUE(products_in(folder.path()).empty());
  EXPECT_EQ(unkept, unwanted) << "both are the library's first proposal";
}

TEST_P(Products, Tf32RoundsTheFactorsOfF32AndNothingElse) {
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
  const Results right = expected(GetParam(), DType::f32);
  const Results exact = compute(GetParam(), false, DType::f32);
  const Results rounded = compute(GetParam(), true, DType::f32);
  expect_near(exact, right, tolerance(DType::f32, inputs_on(GetParam())));
  // TF32 has 10 bits after the point: each factor is off by 2^-11 of itself at the most.
  expect_near(rounded, right, 0x1p-10);
  if (GetParam() == Device::cpu) {
    EXPECT_EQ(rounded, exact);
  }
  EXPECT_EQ(compute(GetParam(), true), compute(GetParam(), false)) << "bf16 is as it was";
}

}  // namespace
}  // namespace capstan::test
