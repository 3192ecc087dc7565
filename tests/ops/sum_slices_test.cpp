#include "ops/sum_slices.h"

#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(SumSlices);

// In f32 (f64 for f64), in this order, rounded once.
Values in_order(const std::vector<Values>& terms, DType dtype) {
  Values sums(terms[0].size());
  for (size_t i = 0; i < sums.size(); ++i) {
    double wide = 0;
    float narrow = 0;
    for (const Values& t : terms) {
      wide += t[i];
      narrow += static_cast<float>(t[i]);
    }
    sums[i] = dtype == DType::f64   ? wide
              : dtype == DType::f32 ? double{narrow}
              : dtype == DType::f16 ? double{float(f16(narrow))}
                                    : double{float(bf16(narrow))};
  }
  return sums;
}

TEST_P(SumSlices, AddsInOrderAndRoundsOnce) {
  for (const DType dtype : kComputeTypes)
    for (const size_t count : {size_t{1}, size_t{2}, size_t{5}, kMostSlices})
      for (const int64_t n : {1, 7, 1024, 5000}) {
        std::vector<Buffer> buffers;
        std::vector<Tensor> x;
        std::vector<Values> terms;
        for (size_t s = 0; s < count; ++s) {
          buffers.push_back(random(dtype, {n}));
          x.push_back(buffers.back());
          terms.push_back(values(buffers.back()));
        }
        const Buffer y = random(dtype, {n});
        std::vector<Values> with_y = terms;
        with_y.insert(with_y.begin(), values(y));
        sum_slices(q_, y, x, Write::add);
        EXPECT_EQ(values(y), in_order(with_y, dtype)) << name_of(dtype) << ' ' << count << ' ' << n;
        sum_slices(q_, y, x);
        EXPECT_EQ(values(y), in_order(terms, dtype));
        sum_slices(q_, x.back(), x);  // in place
        EXPECT_EQ(values(x.back()), in_order(terms, dtype));
      }
}

TEST_P(SumSlices, AddsGroupsFirst) {
  for (const DType dtype : kComputeTypes)
    for (const int groups : {2, 3, 6}) {
      std::vector<Buffer> buffers;
      std::vector<Tensor> x;
      std::vector<Values> sums;
      for (int s = 0; s < 6; ++s) {
        buffers.push_back(random(dtype, {2500}));
        x.push_back(buffers.back());
        const Values term = values(buffers.back());
        if (s % (6 / groups) == 0)
          sums.push_back(term);
        else
          sums.back() = in_order({sums.back(), term}, DType::f32);
      }
      const Buffer y = random(dtype, {2500});
      std::vector<Values> with_y = sums;
      with_y.insert(with_y.begin(), values(y));
      sum_slices(q_, y, x, Write::add, groups);
      EXPECT_EQ(values(y), in_order(with_y, dtype)) << name_of(dtype) << ' ' << groups;
      sum_slices(q_, y, x, Write::replace, groups);
      EXPECT_EQ(values(y), in_order(sums, dtype)) << name_of(dtype) << ' ' << groups;
    }
}

TEST_P(SumSlices, AddsF64) {
  const Buffer a = empty(DType::f64, {3}), b = empty(DType::f64, {3}), y = empty(DType::f64, {3});
  const double first[] = {1, 2, 1e-12}, second[] = {1e-13, 3, 1};
  q_.upload(a, first);
  q_.upload(b, second);
  const Tensor x[] = {a, b};
  sum_slices(q_, y, x);
  double found[3];
  q_.download(found, y);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found[i], first[i] + second[i]);
}

TEST_P(SumSlices, DoesNotDependOnTheThreads) {
  const Buffer a = random(DType::bf16, {50001}), b = random(DType::bf16, {50001});
  const Buffer y = empty(DType::bf16, {50001});
  const Tensor x[] = {a, b};
  expect_same_for_any_threads([&] {
    sum_slices(q_, y, x);
    return values(y);
  });
}

TEST_P(SumSlices, RefusesWrongOperands) {
  const Buffer x = random(DType::f32, {4}), other = random(DType::bf16, {4});
  const Buffer y = empty(DType::f32, {5});
  const Tensor one[] = {x}, mixed[] = {x, other};
  expect_bug("sum_slices", [&] { sum_slices(q_, y, one); });
  expect_bug("sum_slices", [&] { sum_slices(q_, x, mixed); });
  expect_bug("sum_slices", [&] { sum_slices(q_, x, {}); });
  expect_bug("sum_slices", [&] { sum_slices(q_, x, one, Write::replace, 2); });
}

TEST(SumSlicesOnSim, CostsAgree) {
  expect_same_on_sim([](Queue& q) {
    const Buffer x = buffer_of(q, DType::bf16, {30}, Values(30));
    const Tensor all[] = {x, x};
    sum_slices(q, x, all, Write::add);
  });
}

}  // namespace
}  // namespace capstan::test
