#pragma once

#include "ops/cuda/product/dropped_linear.h"
#include "ops/cuda/product/mma.cuh"
#include "ops/cuda/rng.cuh"

// Shared by the kernels of dropped_linear. They are bound by reading x, or by dx: masks are drawn
// as values are loaded or stored.
namespace capstan::cuda {

inline constexpr int kDroppedThreads = 256;

// The pack of eight values from this column on, with dropped values set to zero; kept values are
// not scaled yet.
__device__ inline uint4 drop(uint4 pack, const Rng& rng, const MaskArgument& mask, uint32_t ordinal,
                             int64_t column) {
  return kept(mask.keep, rng.draws(mask.half_of(ordinal, column) / 8), pack);
}

// An asynchronous copy of 16 bytes to shared memory, or zeros.
__device__ inline void copy_pack(bf16_t* to, const bf16_t* from, bool there) {
  copy_ahead<16>(shared_address(to), from, there);
}

// Calls body.operator()<O>(), for an O that drops_on_the_way accepts.
template <class Body>
void with_outputs(int64_t O, const Body& body) {
  switch (O) {
    case 16: return body.template operator()<16>();
    case 32: return body.template operator()<32>();
    case 48: return body.template operator()<48>();
    case 64: return body.template operator()<64>();
    default: return body.template operator()<96>();
  }
}

// to = factor · Σ parts, or to += the same.
void add_parts(Queue& q, const Tensor& to, const Tensor& partial, int64_t parts, float factor,
               Write mode);

}  // namespace capstan::cuda
