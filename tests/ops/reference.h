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

// What the tests of ops share: tensors on any device, their values in f64, measures of error.
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

// Tests are not optimised: through iterators this would be most of their time.
inline double dot(const double* a, const double* b, int64_t n, double start = 0) {
  for (int64_t i = 0; i < n; ++i) start += a[i] * b[i];
  return start;
}
inline double dot(const Values& a, const Values& b) {
  return dot(a.data(), b.data(), std::ssize(a));
}
inline double norm(const Values& a) {
  return std::sqrt(dot(a, a));
}

// ‖found - expected‖ / ‖expected‖: one wrong value among n of its size shows as 1/sqrt(n). NaN when
// either holds one, so that every comparison with a tolerance fails; infinite when lengths differ.
inline double error(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  Values difference(found);
  for (size_t i = 0; i < found.size(); ++i) difference[i] -= expected[i];
  const double size = norm(expected);
  return size > 0 ? norm(difference) / size : norm(difference);
}

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
inline double gradient_error(const std::function<double(const Values&)>& f, const Values& at,
                             const Values& gradient, int directions = 3) {
  if (gradient.size() != at.size()) return INFINITY;
  double worst = 0;
  for (int k = 0; k < directions; ++k) {
    const Rng rng({.seed = 99, .step = static_cast<uint64_t>(k)});
    Values direction(at.size()), up(at), down(at);
    // Error of the differences: h^2 from the third derivative, 2^-53 / h from rounding.
    const double h = 1e-5;
    for (size_t i = 0; i < at.size(); ++i) {
      direction[i] = 2.0 * static_cast<double>(rng.uniform(i)) - 1.0;
      up[i] += h * direction[i];
      down[i] -= h * direction[i];
    }
    const double difference = (f(up) - f(down)) / (2 * h);
    const double size =
        norm(gradient) * norm(direction) / std::sqrt(static_cast<double>(at.size()));
    const double off = std::abs(difference - dot(gradient, direction));
    const double relative = size > 0 ? off / size : off;
    if (std::isnan(relative)) return relative;
    worst = std::max(worst, relative);
  }
  return worst;
}
inline constexpr double kDifferenceError = 1e-7;

// c[m,n] = Σ_k a[m,k] b[k,n], either of which may be stored the other way round: as [k,m], [n,k].
inline Values product_f64(int64_t M, int64_t N, int64_t K, const Values& a, bool a_turned,
                          const Values& b, bool b_turned) {
  Values c(idx(M * N));
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k)
        c[idx(m * N + n)] +=
            a[idx(a_turned ? k * M + m : m * K + k)] * b[idx(b_turned ? n * K + k : k * N + n)];
  return c;
}

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
inline Values values_of(Queue& q, const Tensor& t) {
  Values result;
  if (t.numel() == 0) return result;
  const int64_t D = t.dim(-1);
  std::vector<std::byte> row(idx(D * size_of(t.dtype())));
  for (int64_t r = 0; r < t.numel() / D; ++r) {
    int64_t offset = 0, rest = r;
    for (int i = t.rank() - 2; i >= 0; --i) {
      offset += rest % t.dim(i) * t.stride(i);
      rest /= t.dim(i);
    }
    auto* const address = static_cast<std::byte*>(t.raw()) + offset * size_of(t.dtype());
    q.download(row.data(), Tensor(address, t.dtype(), {D}));
    const Tensor host(row.data(), t.dtype(), {D});
    for (int64_t d = 0; d < D; ++d) switch (t.dtype()) {
        case DType::f32: result.push_back(double{host.as<float>()[d]}); break;
        case DType::bf16: result.push_back(double{float(host.as<bf16>()[d])}); break;
        case DType::f16: result.push_back(double{float(host.as<f16>()[d])}); break;
        case DType::i32: result.push_back(host.as<int32_t>()[d]); break;
        case DType::u8: result.push_back(host.as<uint8_t>()[d]); break;
        case DType::f64: result.push_back(host.as<double>()[d]); break;
      }
  }
  return result;
}

// A buffer that holds `values`, rounded to its type.
inline Buffer buffer_of(Queue& q, DType dtype, const Shape& shape, const Values& values) {
  Buffer buffer = q.arena().make(Category::data, dtype, shape, "test operand");
  std::vector<std::byte> bytes(idx(shape.numel() * size_of(dtype)));
  const Tensor host(bytes.data(), dtype, shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto value = static_cast<float>(values.at(idx(i)));
    switch (dtype) {
      case DType::f32: host.as<float>()[i] = value; break;
      case DType::bf16: host.as<bf16>()[i] = bf16(value); break;
      case DType::f16: host.as<f16>()[i] = f16(value); break;
      case DType::i32: host.as<int32_t>()[i] = static_cast<int32_t>(values[idx(i)]); break;
      case DType::u8: host.as<uint8_t>()[i] = static_cast<uint8_t>(values[idx(i)]); break;
      case DType::f64: host.as<double>()[i] = values[idx(i)]; break;
    }
  }
  q.upload(buffer, bytes.data());
  return buffer;
}

// n values of a normal distribution; other seeds, other values.
inline Values normal_values(int64_t n, uint64_t seed, double std = 1) {
  const Rng rng({.seed = seed});
  Values result(idx(n));
  for (size_t i = 0; i < result.size(); ++i) {
    const auto words = rng.draws(i);
    const double u = (words[0] + 1.0) * 0x1p-32, angle = words[1] * 0x1p-32 * 2 * M_PI;
    result[i] = std * std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }
  return result;
}

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
