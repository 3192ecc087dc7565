#include "checkpoint/convert.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"

namespace capstan {
namespace {

constexpr int64_t kGrain = 1 << 16;

template <class To, class From>
bool convert_range(To* to, const std::byte* from, int64_t begin, int64_t end) {
  bool fit = true;
  for (int64_t i = begin; i < end; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const auto wide = static_cast<float>(value);
    to[i] = static_cast<To>(wide);
    fit &= std::isfinite(static_cast<float>(to[i])) || !std::isfinite(wide);
  }
  return fit;
}

template <class To, class From>
bool convert_values(To* to, const std::byte* from, int64_t n, Threads threads) {
  if (threads == Threads::one) return convert_range<To, From>(to, from, 0, n);
  std::atomic<bool> all_fit = true;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    if (!convert_range<To, From>(to, from, begin, end)) all_fit = false;
  });
  return all_fit;
}

template <class To>
bool convert_to(To* to, const std::byte* from, DType from_type, int64_t n, Threads threads) {
  switch (from_type) {
    case DType::f32: return convert_values<To, float>(to, from, n, threads);
    case DType::bf16: return convert_values<To, bf16>(to, from, n, threads);
    case DType::f16: return convert_values<To, f16>(to, from, n, threads);
    default: fail(Fault::bug, "convert: from {}", name_of(from_type));
  }
}

}  // namespace

bool is_weight_type(DType t) {
  return t == DType::f32 || t == DType::bf16 || t == DType::f16;
}

bool convert(void* to, DType to_type, const std::byte* from, DType from_type, int64_t n,
             Threads threads) {
  if (to_type == from_type) {  // bit for bit, including NaNs
    if (n > 0) std::memcpy(to, from, static_cast<size_t>(n * size_of(to_type)));
    return true;
  }
  switch (to_type) {
    case DType::f32: return convert_to(static_cast<float*>(to), from, from_type, n, threads);
    case DType::bf16: return convert_to(static_cast<bf16*>(to), from, from_type, n, threads);
    case DType::f16: return convert_to(static_cast<f16*>(to), from, from_type, n, threads);
    default: fail(Fault::bug, "convert: to {}", name_of(to_type));
  }
}

}  // namespace capstan
