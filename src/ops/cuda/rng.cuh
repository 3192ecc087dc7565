#pragma once

#include "ops/cuda/device.cuh"
#include "ops/random_key.h"

namespace capstan::cuda {

// A RandomKey as a kernel's argument.
class RngArgument {
 public:
  explicit RngArgument(const RandomKey& key)
      : known_(key.value), at_(data<int32_t>(key.at)), site_(key.value.site) {}

  // Called once, by all threads of a block: one of them makes the state of the others.
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

}  // namespace capstan::cuda
