#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "tensor/cuda/calls.h"

namespace capstan::cuda {

// The CUDA graphs of one stream, by key. On the first use of a key, its work is launched normally,
// so that libraries make the decisions of their first call; the second use records it. A graph has
// several parts if other work is done in between, always at the same places.
class Graphs {
 public:
  using Key = std::array<int64_t, 6>;

  Graphs() = default;
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  GraphUse begin(cudaStream_t stream, const Key& key);
  // Between these two the stream takes work that is in no part.
  void cut(cudaStream_t stream);
  void resume(cudaStream_t stream);
  void end(cudaStream_t stream, const Key& key, bool complete);

 private:
  static constexpr size_t kMost = 16, kMostSeen = 4096;
  // Each kernel in a graph takes some 10 KB of GPU memory, outside of the plan.
  static constexpr size_t kMostNodes = 24 << 10;
  using Parts = std::vector<cudaGraphExec_t>;  // null: a part without work
  struct Entry {
    Parts parts;  // none: seen once
    size_t nodes = 0;
    int64_t used = 0;
  };
  using Entries = std::map<Key, Entry>;
  // Whether one more graph of average size would exceed the limit.
  bool full() const {
    return graphs_ > 0 && (graphs_ >= kMost || nodes_ + nodes_ / graphs_ > kMostNodes);
  }
  void make_room(size_t nodes);  // for one more graph, of this many
  void record(cudaStream_t stream);
  void end_part(cudaStream_t stream);  // and launches it
  void launch_part(cudaStream_t stream);
  static void discard(Parts& parts);
  Entries::iterator oldest();

  Entries entries_;
  size_t graphs_ = 0, nodes_ = 0;  // total of all graphs kept
  int64_t clock_ = 0;
  // The graph between begin() and end().
  Entry recorded_;             // so far
  bool recording_ = false;     // the stream records now
  Entry* replayed_ = nullptr;  // null: it is being recorded
  size_t next_part_ = 0;       // to be launched
};

}  // namespace capstan::cuda
