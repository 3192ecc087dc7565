#pragma once

#include "ops/cuda/device.cuh"

// Many tensors in few launches: each launch takes a table of them by value, and every block works
// on a tile of one of them.
namespace capstan::cuda {

// Entry has `unsigned first_block`, of the launch. A kernel's arguments are limited to 4 KiB.
template <class Entry>
struct TensorTable {
  static constexpr int kMost = static_cast<int>(3840 / sizeof(Entry));
  Entry entry[kMost];
  int count = 0;
};

// The tensor that this block works on.
template <class Entry>
__device__ inline const Entry& entry_of_block(const TensorTable<Entry>& table) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.entry[middle].first_block <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  return table.entry[low];
}
template <class Entry>
__device__ inline int64_t tile_of_block(const Entry& entry) {
  return blockIdx.x - entry.first_block;
}

// Collects entries and calls launch(table, blocks) for each full table, and for the last one on
// flush().
template <class Entry, class Launch>
class TensorBatch {
 public:
  explicit TensorBatch(const Launch& launch) : launch_(launch) {}

  void add(Entry entry, int64_t tiles) {
    // A grid has fewer than 2^31 blocks.
    if (table_.count == table_.kMost || blocks_ + tiles > INT32_MAX) flush();
    entry.first_block = static_cast<unsigned>(blocks_);
    table_.entry[table_.count++] = entry;
    blocks_ += tiles;
  }
  void flush() {
    if (table_.count > 0) launch_(table_, static_cast<unsigned>(blocks_));
    table_.count = 0;
    blocks_ = 0;
  }

 private:
  Launch launch_;
  TensorTable<Entry> table_;
  int64_t blocks_ = 0;
};

// Whether dense tensors can be accessed in packs of n values from the first to the last.
template <class... Tensors>
bool walks_in_packs(int n, const Tensors&... tensors) {
  const auto fits = [n](const Tensor& t) {
    return !t || (t.numel() % n == 0 && reinterpret_cast<uintptr_t>(t.raw()) %
                                                static_cast<uintptr_t>(n * size_of(t.dtype())) ==
                                            0);
  };
  return (fits(tensors) && ...);
}

}  // namespace capstan::cuda
