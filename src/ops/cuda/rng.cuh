#pragma once

#include "ops/cuda/device.cuh"
#include "ops/dropout_mask.h"
#include "ops/keep.h"

namespace capstan::cuda {

// A RandomKey as a kernel's argument.
class RngArgument {
 public:
  explicit RngArgument(const RandomKey& key)
      : known_(key.value), at_(data<int32_t>(key.at)), site_(key.value.site) {}

  // All threads of a block call it once: one of them computes the state for all.
  __device__ Rng read() const {
    if (at_ == nullptr) return known_;
    __shared__ uint4 state;
    static_assert(sizeof(Rng) == sizeof state);
    Rng rng = known_;
    if (threadIdx.x == 0) {
      rng = Rng(key_of(at_, site_));
      memcpy(&state, &rng, sizeof state);
    }
    __syncthreads();
    memcpy(&rng, &state, sizeof state);
    return rng;
  }

 private:
  Rng known_;
  const int32_t* at_;
  uint32_t site_;
};

// A DropoutMask of x as a kernel's argument.
struct MaskArgument {
  RngArgument key;
  Keep keep;
  const int32_t* ordinals;
  int64_t columns, first_column;

  MaskArgument(const DropoutMask& mask, const Tensor& x_TI)
      : key(mask.key),
        keep(mask.p),
        ordinals(data<int32_t>(mask.ordinals_T)),
        columns(mask.columns_of(x_TI)),
        first_column(mask.first_column) {}

  __device__ uint32_t ordinal_of(int64_t row) const {
    return static_cast<uint32_t>(ordinals == nullptr ? row : ordinals[row]);
  }
  // The index of the value's half in the key's stream.
  __device__ uint64_t half_of(uint32_t ordinal, int64_t column) const {
    return uint64_t{ordinal} * static_cast<uint64_t>(columns) +
           static_cast<uint64_t>(first_column + column);
  }
};

// For the eight values whose halves are in these words: whether value k is kept; and the same for a
// pack of them, with the dropped ones set to zero.
__device__ inline bool keeps(const Keep& keep, const std::array<uint32_t, 4>& words, int k) {
  const uint32_t word = words[static_cast<size_t>(k / 2)];
  return (k % 2 == 0 ? word & 0xffff : word >> 16) >= keep.least;
}
__device__ inline uint4 kept(const Keep& keep, const std::array<uint32_t, 4>& words, uint4 pack) {
  const auto pair = [&](int k) {
    return (keeps(keep, words, k) ? 0xffffu : 0u) | (keeps(keep, words, k + 1) ? 0xffff0000u : 0u);
  };
  return {pack.x & pair(0), pack.y & pair(2), pack.z & pair(4), pack.w & pair(6)};
}

}  // namespace capstan::cuda
