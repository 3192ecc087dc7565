// c = factor · a b by wgmma, in as many clusters of two blocks as the device holds at once.
#include "ops/cuda/wgmma_product.cuh"

#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma_product.h"

namespace capstan::cuda {
namespace {

using namespace product_tiles;

template <bool kTransposed>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ CUtensorMap c, const __grid_constant__ CUtensorMap a,
                   const __grid_constant__ CUtensorMap b, const __grid_constant__ Extents extents,
                   float factor) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  const Room room(memory);
  const int rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      make_barrier(room.full() + 8 * stage, 1);
      make_barrier(room.empty() + 8 * stage, 2 * 2 * 4);  // warps that multiply, of both blocks
    }
    publish_barriers();
  }
  __syncthreads();
  meet_cluster();
  // The same for a whole warp, which the compiler does not know.
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  // Registers go to those who need them.
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load_tiles<kTransposed>(room, &a, &b, extents, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_tiles<kTransposed>(room, &c, extents, factor, rank, group - 1);
  }
  __syncwarp();
  meet_cluster();  // a block must be there while the other sends to it
#endif
}

// Launches of a kernel in clusters of two blocks.
class Launch {
 public:
  Launch(unsigned blocks, cudaStream_t stream) {
    pairs_.id = cudaLaunchAttributeClusterDimension;
    pairs_.val.clusterDim = {2, 1, 1};
    config_.gridDim = dim3(blocks);
    config_.blockDim = dim3(kThreads);
    config_.dynamicSmemBytes = kSharedBytes;
    config_.stream = stream;
    config_.attrs = &pairs_;
    config_.numAttrs = 1;
  }
  Launch(const Launch&) = delete;  // the one refers to the other
  Launch& operator=(const Launch&) = delete;
  const cudaLaunchConfig_t* config() const { return &config_; }

 private:
  cudaLaunchAttribute pairs_{};
  cudaLaunchConfig_t config_{};
};

// Lets the kernel have its shared memory, and says how many clusters the device holds at once.
template <class Kernel>
int prepare(Kernel kernel, int multiprocessors) {
  allow(kernel, kSharedBytes);
  const int most = std::max(1, multiprocessors / 2);
  const Launch launch(static_cast<unsigned>(2 * most), nullptr);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, launch.config()), "prepare a product");
  return std::clamp(clusters, 1, most);
}

template <bool kTransposed>
cudaError_t launch(const Context& context, const CUtensorMap& c, const CUtensorMap& a,
                   const CUtensorMap& b, const Extents& extents, float factor) {
  const auto kernel = product_kernel<kTransposed>;
  static const int clusters = prepare(kernel, context.multiprocessors());
  const Launch launch(static_cast<unsigned>(2 * clusters), context.stream());
  return cudaLaunchKernelEx(launch.config(), kernel, c, a, b, extents, factor);
}

int64_t tiles_of(const Tensor& c) {
  return blocks_for(c.dim(0), 2 * kRows) * blocks_for(c.dim(1), kWidth);
}

}  // namespace

bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a,
                         const Factor& b) {
  constexpr int64_t kMostTiles = int64_t{1} << 29;  // twice as many, and clusters, are an int
  return context.wgmma() && !a.transposed && can_map(c) && can_map(a.matrix) && can_map(b.matrix) &&
         tiles_of(c) <= kMostTiles;
}

bool wgmma_product_suits(const Tensor& c) {
  return c.dim(0) > kRows;
}

cudaError_t wgmma_product(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          float factor) {
  CUtensorMap c_map, a_map, b_map;
  if (!map_matrix(c_map, c, 64) || !map_matrix(a_map, a.matrix, kRows) ||
      !map_matrix(b_map, b.matrix, 64))
    return cudaErrorNotSupported;
  const Extents extents = {static_cast<int>(blocks_for(c.dim(0), 2 * kRows)),
                           static_cast<int>(blocks_for(c.dim(1), kWidth)),
                           static_cast<int>(blocks_for(a.cols(), kStep))};
  return b.transposed ? launch<true>(context, c_map, a_map, b_map, extents, factor)
                      : launch<false>(context, c_map, a_map, b_map, extents, factor);
}

}  // namespace capstan::cuda
