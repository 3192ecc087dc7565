#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/queue.h"

// What the tests of ops share: tensors on any device, their values in f64, measures of error. Tests
// are not optimised; what takes most of their time is in reference.cpp, which is.
//
//   CAPSTAN_ON_EVERY_DEVICE(RmsNorm);
//   TEST_P(RmsNorm, MatchesF64) {
//     const Buffer x = random(DType::f32, {3, 33});
//     …
//     EXPECT_LT(error(values(y), expected), tolerance(y.dtype(), 33));
//   }
namespace capstan::test {

using Values = std::vector<double>;

inline size_t idx(int64_t i) {
  return static_cast<size_t>(i);
}

// ---- measures ------------------------------------------------------------------------------

double dot(const double* a, const double* b, int64_t n, double start = 0);
inline double dot(const Values& a, const Values& b) {
  return dot(a.data(), b.data(), std::ssize(a));
}
inline double norm(const Values& a) {
  return std::sqrt(dot(a, a));
}

// ‖found - expected‖ / ‖expected‖: one wrong value among n of its size shows as 1/sqrt(n). NaN when
// either holds one, so that every comparison with a tolerance fails; infinite when lengths differ.
double error(const Values& found, const Values& expected);

// The error that rounding explains when values of type `out` come from f32 sums of `terms` terms
// and `steps` further operations. Rounding errors in a sum add up like a random walk, hence the
// root; the unit roundoff is 2^-24 for f32, and storing as bf16 adds 2^-8 (f16: 2^-11) at most.
// Operands must be compared as stored: random() and values() round them first.
inline double tolerance(DType out, int64_t terms = 1, double steps = 4) {
  const double stored = out == DType::bf16 ? 0x1p-8 : out == DType::f16 ? 0x1p-11 : 0;
  return (std::sqrt(static_cast<double>(terms)) + steps) * 0x1p-24 + stored;
}

// How far an analytic gradient is from central differences of an f64 function, along random
// directions, relative to ‖gradient‖‖direction‖/sqrt(n): the size that gradient·direction has for
// such a direction. An error of `tol` in the gradient shows as `tol` times a normal value, so
// compare with 4 * tolerance(…) + kDifferenceError.
double gradient_error(const std::function<double(const Values&)>& f, const Values& at,
                      const Values& gradient, int directions = 3);
inline constexpr double kDifferenceError = 1e-7;

// c[m,n] = Σ_k a[m,k] b[k,n], either of which may be stored the other way round: as [k,m], [n,k].
Values product_f64(int64_t M, int64_t N, int64_t K, const Values& a, bool a_turned, const Values& b,
                   bool b_turned);

// ---- devices and tensors -------------------------------------------------------------------

inline std::vector<Device> devices_present() {
  std::vector<Device> devices = {Device::cpu};
  if (cuda_present()) devices.push_back(Device::cuda);
  return devices;
}

inline std::string device_name(const testing::TestParamInfo<Device>& info) {
  return std::string(name_of(info.param));
}

inline const std::vector<DType> kComputeTypes = {DType::f32, DType::bf16, DType::f16};

// Those that may meet these in one op: bf16 and f16 do not.
inline std::vector<DType> types_beside(std::initializer_list<DType> others) {
  std::vector<DType> types;
  for (const DType t : kComputeTypes)
    if (std::all_of(others.begin(), others.end(),
                    [&](DType o) { return o == t || o == DType::f32 || t == DType::f32; }))
      types.push_back(t);
  return types;
}

// The values of a tensor, in the order of its indices. Rows are fetched one by one: they are dense
// whatever the other strides.
Values values_of(Queue& q, const Tensor& t);

// A buffer that holds `values`, rounded to its type.
Buffer buffer_of(Queue& q, DType dtype, const Shape& shape, const Values& values);

// n values of a normal distribution; other seeds, other values.
Values normal_values(int64_t n, uint64_t seed, double std = 1);

class OnEveryDevice : public testing::TestWithParam<Device> {
 protected:
  OnEveryDevice() : arena_(Arena::Heap{}, GetParam()), q_(GetParam(), arena_) {}

  // Normal values; each call gives others, the same in every run.
  Buffer random(DType dtype, const Shape& shape, double std = 1) {
    return of(dtype, shape, normal_values(shape.numel(), ++seed_, std));
  }
  Buffer of(DType dtype, const Shape& shape, const Values& values) {
    return buffer_of(q_, dtype, shape, values);
  }
  Buffer zeros(DType dtype, const Shape& shape) {
    return of(dtype, shape, Values(idx(shape.numel()), 0.0));
  }
  // For results: NaN (negative, for integers) until written.
  Buffer empty(DType dtype, const Shape& shape) {
    Buffer buffer = q_.arena().make(Category::data, dtype, shape, "test result");
    const std::vector<std::byte> ones(idx(buffer->nbytes()), std::byte{0xff});
    q_.upload(buffer, ones.data());
    return buffer;
  }
  Values values(const Tensor& t) { return values_of(q_, t); }

  Arena arena_;
  Queue q_;
  uint64_t seed_ = 0;
};

// … but for GPUs that do not multiply matrices of FP8: there the op refuses, by the same rule.
class OnEveryFp8Device : public OnEveryDevice {
 protected:
  void SetUp() override {
    if (GetParam() == Device::cuda && !multiplies_fp8(Device::cuda))
      GTEST_SKIP() << "this GPU does not multiply matrices of FP8";
  }
};

// A test suite whose tests run once on each device.
#define CAPSTAN_ON_EVERY_DEVICE(Suite)                                                        \
  class Suite : public ::capstan::test::OnEveryDevice {};                                     \
  INSTANTIATE_TEST_SUITE_P(Ops, Suite, testing::ValuesIn(::capstan::test::devices_present()), \
                           ::capstan::test::device_name)

// ---- contracts that every op keeps ---------------------------------------------------------

// Runs `calls` on every device and on a sim that imitates it; both must account the same costs and
// ask for the same memory. `calls` makes its tensors with q.arena() (or buffer_of). On sim they
// have no memory, so an op that touches one crashes.
inline void expect_same_on_sim(Device device, const std::function<void(Queue&)>& calls) {
  Arena heap(Arena::Heap{}, device), recording;
  Queue real(device, heap), sim(Device::sim, recording, {.device = device});
  calls(real);
  calls(sim);
  EXPECT_GT(real.total().bytes, 0);
  ASSERT_EQ(real.totals().size(), sim.totals().size());
  for (size_t i = 0; i < real.totals().size(); ++i) {
    const OpTotal &a = real.totals()[i], &b = sim.totals()[i];
    EXPECT_STREQ(a.op, b.op);
    EXPECT_EQ(a.calls, b.calls) << a.op;
    EXPECT_EQ(a.cost.flops, b.cost.flops) << a.op;
    EXPECT_EQ(a.cost.bytes, b.cost.bytes) << a.op;
  }
  EXPECT_EQ(heap.highest(), recording.highest()) << name_of(device);
}
inline void expect_same_on_sim(const std::function<void(Queue&)>& calls) {
  for (const Device device : devices_present()) expect_same_on_sim(device, calls);
}

// `compute` must give bitwise the same values with any number of threads.
inline void expect_same_for_any_threads(const std::function<Values()>& compute) {
  const int usual = omp_get_max_threads();
  omp_set_num_threads(1);
  const Values alone = compute();
  for (const int threads : {2, 3, 7}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(compute(), alone) << threads << " threads";
  }
  omp_set_num_threads(usual);
}

// `call` must throw Fault::bug with a message that begins with the op's name.
inline void expect_bug(const std::string& op, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << op << " accepted wrong operands";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::bug);
    EXPECT_EQ(std::string(e.what()).rfind(op + ":", 0), 0u) << e.what();
  }
}

}  // namespace capstan::test
