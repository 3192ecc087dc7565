#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>

#include "tensor/queue.h"

namespace capstan::cuda {

// Shapes, strides, types and alignments of a matrix product: what its best algorithm depends on.
struct GemmKey {
  std::array<int64_t, 8> fields;
  auto operator<=>(const GemmKey&) const = default;
};

// One stream of the current GPU and what the ops need on it. Belongs to its queue's thread.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t blas() const { return blas_; }
  int multiprocessors() const { return multiprocessors_; }
  // Whether Hopper's matrix products (ops/cuda/wgmma.cuh) may be used: the GPU has them, and the
  // program was compiled for them.
  bool wgmma() const { return wgmma_ && !avoids_wgmma_; }
  void avoid_wgmma(bool avoid) { avoids_wgmma_ = avoid; }  // to compare

  // Algorithms of products that were chosen before; null for none.
  cublasLtMatmulAlgo_t* find_algorithm(const GemmKey& key) {
    const auto it = algorithms_.find(key);
    return it == algorithms_.end() ? nullptr : &it->second;
  }
  cublasLtMatmulAlgo_t* keep_algorithm(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm) {
    return &(algorithms_[key] = algorithm);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  int multiprocessors_ = 0;
  bool wgmma_ = false, avoids_wgmma_ = false;
  std::map<GemmKey, cublasLtMatmulAlgo_t> algorithms_;
};

inline cudaStream_t stream_of(const Queue& q) {
  return q.cuda().stream();
}

}  // namespace capstan::cuda
