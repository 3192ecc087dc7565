#include "ops/cuda/elementwise.h"
#include "ops/cuda/tensor_table.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kTile = 1 << 16;  // bytes

struct ZeroEntry {
  char* at;
  int64_t bytes;
  unsigned first_block;
  bool wide;
};

__global__ void fill_zeros_kernel(const __grid_constant__ TensorTable<ZeroEntry> table) {
  const ZeroEntry& e = entry_of_block(table);
  const int64_t begin = tile_of_block(e) * kTile, end = min(begin + kTile, e.bytes);
  int64_t packed = begin;  // where whole packs end
  if (e.wide) {
    packed = end - end % int64_t{sizeof(uint4)};
    for (int64_t i = begin + threadIdx.x * int64_t{sizeof(uint4)}; i < packed;
         i += kThreads * int64_t{sizeof(uint4)})
      *reinterpret_cast<uint4*>(e.at + i) = uint4{};
  }
  for (int64_t i = packed + threadIdx.x; i < end; i += kThreads) e.at[i] = 0;
}

}  // namespace

void fill_zeros(Queue& q, std::span<const Tensor> all) {
  const auto launch = [&](const TensorTable<ZeroEntry>& table, unsigned blocks) {
    fill_zeros_kernel<<<blocks, kThreads, 0, stream_of(q)>>>(table);
  };
  TensorBatch<ZeroEntry, decltype(launch)> batch(launch);
  for (const Tensor& y : all) {
    const bool wide = reinterpret_cast<uintptr_t>(y.raw()) % sizeof(uint4) == 0;
    if (y.numel() > 0)
      batch.add({static_cast<char*>(y.raw()), y.nbytes(), 0, wide}, blocks_for(y.nbytes(), kTile));
  }
  batch.flush();
  launched("fill");
}

}  // namespace capstan::cuda
