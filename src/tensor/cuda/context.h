#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <utility>

#include "tensor/cuda/graphs.h"
#include "tensor/cuda/lanes.h"
#include "tensor/cuda/product_method.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// The streams of a queue on the thread's GPU and the resources of its ops. Not thread safe: for the
// queue's thread.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int index() const { return index_; }  // of its GPU
  cudaStream_t stream() const { return lanes_.current(); }
  Lanes& lanes() { return lanes_; }
  cublasLtHandle_t blas() const { return blas_; }
  int multiprocessors() const { return multiprocessors_; }
  int shared_memory() const {
    return shared_memory_;
  }  // maximum shared memory of a block, in bytes
  // Whether the GPU can walk the host's page tables, as with NVIDIA's own CPUs.
  bool reads_pageable() const { return reads_pageable_; }
  Graphs& graphs() { return graphs_; }
  // Whether Hopper's matrix products (ops/cuda/product/wgmma.cuh) may be used: the GPU has them,
  // and the program was compiled for them.
  bool wgmma() const { return wgmma_ && !avoids_wgmma_; }
  // Whether warps can multiply this type (ops/cuda/product/mma.cuh).
  bool has_mma(DType type) const {
    return capability_ >= (type == DType::f16 ? std::pair(7, 5) : std::pair(8, 0));
  }
  // Chooses kernels as for a GPU of this compute capability, as far as it has less than this one:
  // to test them.
  void act_like(std::pair<int, int> capability);
  void avoid_wgmma(bool avoid) {  // to compare
    avoids_wgmma_ = avoid;
    methods_.clear();
  }
  // A number that is computed once for each kernel on this GPU, before its first launch: how many
  // blocks or clusters the GPU holds at once.
  template <class Compute>
  int resident(const void* kernel, const Compute& compute) {
    const auto it = resident_.find(kernel);
    return it != resident_.end() ? it->second : resident_[kernel] = compute();
  }
  bool fp8() const { return fp8_; }  // whether the GPU has FP8 matrix products

  // The method of this run for a product; null until it is stored. Valid for exactly these shapes.
  const ProductMethod* find_method(const ProductKey& key) const {
    const auto it = methods_.find(key);
    return it == methods_.end() ? nullptr : &it->second;
  }
  const ProductMethod* keep_method(const ProductKey& key, const ProductMethod& method);

  // The measurements for this GPU and cuBLASLt; null if CAPSTAN_MEASURE_PRODUCTS=0 selects the
  // library's first heuristic.
  ProductCache* product_cache() { return product_cache_.get(); }
  // Whether our kernel wins every measurement: for tests.
  bool favours_wgmma() const { return favours_wgmma_; }
  void favour_wgmma(bool favour) { favours_wgmma_ = favour; }
  void note_measured(double seconds);
  // One line about measurements since the last call, if there were any.
  void tell_measured();

 private:
  int index_ = 0;
  Lanes lanes_;
  Graphs graphs_;
  cublasLtHandle_t blas_ = nullptr;
  int multiprocessors_ = 0, shared_memory_ = 0;
  bool wgmma_ = false, avoids_wgmma_ = false, favours_wgmma_ = false, fp8_ = false;
  bool reads_pageable_ = false;
  std::pair<int, int> capability_;
  std::map<ProductKey, ProductMethod> methods_;
  std::map<const void*, int> resident_;
  std::unique_ptr<ProductCache> product_cache_;
  int measured_ = 0;
  double measured_seconds_ = 0;
};

// The compute capability of a GPU, 9.0. CAPSTAN_GPU_LIKE=7.5 lets the program treat it as one of
// Turing's, to test what it does there; never as a newer one than it is.
std::pair<int, int> capability_of(int device);

inline cudaStream_t stream_of(const Queue& q) {
  return q.cuda().stream();
}

}  // namespace capstan::cuda
