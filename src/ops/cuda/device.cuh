#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/linear.h"
#include "ops/scalar.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/context.h"

// Shared by all kernels. On the device bf16 and f16 are CUDA's own types, with the same bits.
namespace capstan::cuda {

using bf16_t = __nv_bfloat16;
using f16_t = __half;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16_t x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(f16_t x) {
  return __half2float(x);
}

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16_t from_float<bf16_t>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline f16_t from_float<f16_t>(float x) {
  return __float2half_rn(x);
}

// N values, read and written in one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

template <int N, class T>
__device__ inline void load(float (&to)[N], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.value[i]);
}

// Four bytes of values, in memory order.
__device__ inline uint32_t word_of(const float*, const float* from) {
  return __float_as_uint(from[0]);
}
__device__ inline uint32_t word_of(const bf16_t*, const float* from) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(from[0], from[1]);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ inline uint32_t word_of(const f16_t*, const float* from) {
  const __half2 both = __floats2half2_rn(from[0], from[1]);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Word by word, each by name: for a Pack of two-byte values, and sometimes for an array of words,
// the compiler emits narrow stores instead.
template <int N, class T>
__device__ inline void store(T* to, const float (&from)[N]) {
  constexpr int kWords = N * static_cast<int>(sizeof(T)) / 4, kEach = 4 / sizeof(T);
  if constexpr (kWords == 0) {
    *to = from_float<T>(from[0]);
  } else {
    uint32_t words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = word_of(to, from + i * kEach);
    if constexpr (kWords == 1)
      *reinterpret_cast<uint32_t*>(to) = words[0];
    else if constexpr (kWords == 2)
      __stwb(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
    else
#pragma unroll
      for (int i = 0; i < kWords; i += 4)
        __stwb(reinterpret_cast<uint4*>(to) + i / 4,
               make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]));
  }
}

// 16 bytes of values, kept in registers in their memory format: half the registers of f32.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// Values per access through a pointer: 16 bytes, so that neighbouring threads access neighbouring
// packs; eight if the type is only known at run time.
template <class P>
inline constexpr int kWide = std::is_same_v<P, float*> ? 4 : 8;

template <class T>
__device__ inline void unpack(float (&to)[kPack<T>], const uint4& from) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      to[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, bf16_t>) {  // the upper half of f32
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      to[2 * i] = both.x;
      to[2 * i + 1] = both.y;
    }
  }
}
// Zeros if out of range.
template <class T>
__device__ inline uint4 pack_at(const T* from, bool there) {
  return there ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}
template <class T>
__device__ inline uint4 packed(const float (&from)[kPack<T>]) {
  constexpr int kEach = kPack<T> / 4;
  const T* const type = nullptr;
  return {word_of(type, from), word_of(type, from + kEach), word_of(type, from + 2 * kEach),
          word_of(type, from + 3 * kEach)};
}

// A pointer to f32, bf16 or f16 values, decided at run time: for mixes of types, which are rare.
// All threads of a launch take the same branch.
struct AnyPointer {
  void* at;
  DType type;

  __device__ AnyPointer operator+(int64_t n) const {
    return {static_cast<char*>(at) + n * (type == DType::f32 ? 4 : 2), type};
  }
};
template <int N>
__device__ inline void load(float (&to)[N], AnyPointer from) {
  if (from.type == DType::f32)
    load(to, static_cast<const float*>(from.at));
  else if (from.type == DType::bf16)
    load(to, static_cast<const bf16_t*>(from.at));
  else
    load(to, static_cast<const f16_t*>(from.at));
}
template <int N>
__device__ inline void store(AnyPointer to, const float (&from)[N]) {
  if (to.type == DType::f32)
    store(static_cast<float*>(to.at), from);
  else if (to.type == DType::bf16)
    store(static_cast<bf16_t*>(to.at), from);
  else
    store(static_cast<f16_t*>(to.at), from);
}

// A value rounded as if stored and read back.
__device__ inline float rounded(const float*, float x) {
  return x;
}
__device__ inline float rounded(const bf16_t*, float x) {
  return to_float(from_float<bf16_t>(x));
}
__device__ inline float rounded(const f16_t*, float x) {
  return to_float(from_float<f16_t>(x));
}
__device__ inline float rounded(AnyPointer to, float x) {
  if (to.type == DType::f32) return x;
  return to.type == DType::bf16 ? to_float(from_float<bf16_t>(x)) : to_float(from_float<f16_t>(x));
}

inline constexpr float kLog2e = 1.4426950408889634f;

// 2^x; flushes results below 2^-126 to zero.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
  return x;
}
__device__ inline uint32_t warp_max(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffff, x);
#else
  for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(0xffffffff, x, step));
  return x;
#endif
}

// The sum over a block of kThreads, the same in every thread. `room` is shared memory for kThreads
// / 32 values; two consecutive calls need no barrier between them if they use different buffers.
template <int kThreads>
__device__ inline float block_sum(float x, float* room) {
  x = warp_sum(x);
  if constexpr (kThreads == 32) return x;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += room[i];
  return sum;
}

// Calls body(row, column) for every item of `rows` rows of `width` items, with the threads of the
// grid side by side. Divides only once, at the start: a division per item takes longer than reading
// it when the clock is power-limited.
template <class Body>
__device__ inline void walk_rows(int64_t rows, int64_t width, const Body& body) {
  const auto n = static_cast<uint32_t>(width);
  const uint32_t start = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
  const uint32_t rows_on = stride / n, columns_on = stride % n;
  uint32_t column = start % n;
  for (int64_t row = start / n; row < rows; row += rows_on) {
    body(row, column);
    column += columns_on;
    if (column >= n) {
      column -= n;
      ++row;
    }
  }
}

// ---- on the host ---------------------------------------------------------------------------

// Calls body.operator()<T>() with the device's type: bf16 or f16 …
template <class Body>
void with_narrow_type(DType type, const Body& body) {
  if (type == DType::bf16)
    body.template operator()<bf16_t>();
  else
    body.template operator()<f16_t>();
}
// … or f32, too.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::f32)
    body.template operator()<float>();
  else
    with_narrow_type(type, body);
}
// The same for two tensors. bf16 and f16 do not meet: nothing is compiled for both.
template <class Body>
void with_types(DType a, DType b, const Body& body) {
  with_type(a, [&]<class A>() {
    with_type(b, [&]<class B>() {
      if constexpr (std::is_same_v<A, B> || std::is_same_v<A, float> || std::is_same_v<B, float>)
        body.template operator()<A, B>();
      else
        fail(Fault::bug, "cuda: no arithmetic on {} with {}", name_of(a), name_of(b));
    });
  });
}

template <class T>
T* data(const Tensor& t) {
  return static_cast<T*>(t.raw());
}

// A Scalar as a kernel's argument.
struct ScalarArgument {
  float value;
  const float* at;

  explicit ScalarArgument(const Scalar& s) : value(s.value), at(data<float>(s.at)) {}
  __device__ float read() const { return at != nullptr ? *at : value; }
};

inline AnyPointer any(const Tensor& t) {
  return {t.raw(), t ? t.dtype() : DType::f32};
}

// Calls body(pointers…): T* if all tensors have one type, otherwise AnyPointer. So a kernel is
// compiled four times, for any number of operands. Absent tensors give null pointers and match any
// type.
template <class Body, class... Tensors>
void with_pointers(const Body& body, const Tensors&... tensors) {
  const auto all = [&](DType type) { return ((!tensors || tensors.dtype() == type) && ...); };
  if (all(DType::bf16))
    body(data<bf16_t>(tensors)...);
  else if (all(DType::f16))
    body(data<f16_t>(tensors)...);
  else if (all(DType::f32))
    body(data<float>(tensors)...);
  else
    body(any(tensors)...);
}

inline int64_t blocks_for(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

// A grid-stride grid for `items`: large enough to fill any device, and no larger.
inline unsigned grid_for(int64_t items, int threads) {
  return static_cast<unsigned>(std::clamp<int64_t>(blocks_for(items, threads), 1, 132 * 32));
}

// Allows a kernel this much dynamic shared memory.
template <class Kernel>
void allow(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "take shared memory");
}

// Upper bound of the static shared memory of the kernels that use this: 2 KiB.
inline int64_t shared_room(const Queue& q) {
  return q.cuda().shared_memory() - 2048;
}

// Whether tensors can be accessed in packs of n values: their rows begin and end at multiples of n.
template <class... Tensors>
bool packs(int n, const Tensors&... tensors) {
  const auto fits = [n](const Tensor& t) {
    if (!t) return true;
    bool ok =
        t.dim(-1) % n == 0 &&
        reinterpret_cast<uintptr_t>(t.raw()) % static_cast<uintptr_t>(n * size_of(t.dtype())) == 0;
    for (int i = 0; i + 1 < t.rank(); ++i) ok = ok && t.stride(i) % n == 0;
    return ok;
  };
  return (fits(tensors) && ...);
}

}  // namespace capstan::cuda
