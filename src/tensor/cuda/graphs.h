#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>

#include "tensor/cuda/calls.h"

namespace capstan::cuda {

// The CUDA graphs of one stream, by key. The first time that a key comes, its work is launched as
// any other, so that whatever libraries decide at their first call is decided; the second time it
// is recorded.
class Graphs {
 public:
  using Key = std::array<int64_t, 6>;

  Graphs() = default;
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  GraphUse begin(cudaStream_t stream, const Key& key);
  void end(cudaStream_t stream, const Key& key, bool complete);

 private:
  static constexpr size_t kMost = 16, kMostSeen = 4096;
  // A kernel takes the driver some 10 KB of the GPU's memory, beside what a run has planned.
  static constexpr size_t kMostNodes = 24 << 10;
  struct Entry {
    cudaGraphExec_t graph = nullptr;  // null: seen once
    size_t nodes = 0;
    int64_t used = 0;
  };
  using Entries = std::map<Key, Entry>;
  // Whether another, as large as they are in the mean, would be too much.
  bool full() const {
    return graphs_ > 0 && (graphs_ >= kMost || nodes_ + nodes_ / graphs_ > kMostNodes);
  }
  void make_room(size_t nodes);  // for one more graph, of so many
  Entries::iterator oldest();

  Entries entries_;
  size_t graphs_ = 0, nodes_ = 0;  // of all that are kept
  int64_t clock_ = 0;
};

}  // namespace capstan::cuda
