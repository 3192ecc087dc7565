// c = factor · a b by wgmma, with as many clusters of two blocks as the device holds at once.
#include "ops/cuda/product/wgmma_product.cuh"

#include <algorithm>

#include "ops/cuda/product/tensor_map.h"
#include "ops/cuda/product/wgmma_product.h"

namespace capstan::cuda {
namespace {

using namespace product_tiles;

template <bool kTransposed, class Added>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ CUtensorMap c, const __grid_constant__ CUtensorMap a,
                   const __grid_constant__ CUtensorMap b, const __grid_constant__ Added added,
                   const __grid_constant__ Extents extents, float factor) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  const Room room(memory);
  const int rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      make_barrier(room.full() + 8 * stage, 1);
      make_barrier(room.empty() + 8 * stage, 2 * 2 * 4);  // consumer warps, of both blocks
    }
    publish_barriers();
  }
  __syncthreads();
  meet_cluster();
  // The same for a whole warp; tells the compiler that it is uniform.
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  // Moves registers from the producer to the consumers.
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load_tiles<kTransposed>(room, &a, &b, extents, added, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_tiles<kTransposed>(room, &c, extents, added, factor, rank, group - 1);
  }
  __syncwarp();
  meet_cluster();  // a block must exist while the other sends to it
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
  Launch(const Launch&) = delete;  // one refers to the other
  Launch& operator=(const Launch&) = delete;
  const cudaLaunchConfig_t* config() const { return &config_; }

 private:
  cudaLaunchAttribute pairs_{};
  cudaLaunchConfig_t config_{};
};

// Allows the kernel its shared memory, and returns how many clusters the device holds at once.
template <class Kernel>
int prepare(Kernel kernel, int multiprocessors) {
  allow(kernel, kSharedBytes);
  const int most = std::max(1, multiprocessors / 2);
  const Launch launch(static_cast<unsigned>(2 * most), nullptr);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, launch.config()), "prepare a product");
  return std::clamp(clusters, 1, most);
}

// The tensor maps of a product. Refers to the operands' memory.
struct Maps {
  CUtensorMap c, a, b;
  Extents extents;

  bool make(const Tensor& to, const Factor& left, const Factor& right) {
    extents = {static_cast<int>(blocks_for(to.dim(0), 2 * kRows)),
               static_cast<int>(blocks_for(to.dim(1), kWidth)),
               static_cast<int>(blocks_for(left.cols(), kStep))};
    return map_matrix(c, to, 64) && map_matrix(a, left.matrix, kRows) &&
           map_matrix(b, right.matrix, 64);
  }
};

template <bool kTransposed, class Added>
cudaError_t launch(Context& context, const Maps& maps, const Added& added, float factor) {
  const auto kernel = product_kernel<kTransposed, Added>;
  const int clusters = context.resident(reinterpret_cast<const void*>(kernel),
                                        [&] { return prepare(kernel, context.multiprocessors()); });
  const Launch launch(static_cast<unsigned>(2 * clusters), context.stream());
  return cudaLaunchKernelEx(launch.config(), kernel, maps.c, maps.a, maps.b, added, maps.extents,
                            factor);
}

int64_t tiles_of(const Tensor& c) {
  return blocks_for(c.dim(0), 2 * kRows) * blocks_for(c.dim(1), kWidth);
}

}  // namespace

bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a,
                         const Factor& b) {
  constexpr int64_t kMostTiles = int64_t{1}
                                 << 29;  // twice as many, and clusters, must fit in an int
  return context.wgmma() && !a.transposed && can_map(c) && can_map(a.matrix) && can_map(b.matrix) &&
         tiles_of(c) <= kMostTiles;
}

bool wgmma_product_suits(const Tensor& c) {
  return c.dim(0) > kRows;
}

cudaError_t wgmma_product(Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          float factor) {
  Maps maps;
  if (!maps.make(c, a, b)) return cudaErrorNotSupported;
  return b.transposed ? launch<true>(context, maps, NoTerms(), factor)
                      : launch<false>(context, maps, NoTerms(), factor);
}

bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                         const ThinTerms& terms) {
  const auto whole = [&](const ThinTerm& t) {
    return t.first % kWidth == 0 && (t.end() % kWidth == 0 || t.end() == c.dim(1)) &&
           can_map(t.x_TR) && can_map(t.w_OR);
  };
  return b.transposed && wgmma_product_takes(context, c, a, b) &&
         std::all_of(terms.begin(), terms.end(), whole);
}

cudaError_t wgmma_product(Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          const ThinTerms& terms) {
  Maps maps;
  Terms added{};
  if (!maps.make(c, a, b)) return cudaErrorNotSupported;
  Terms::Term* to = added.all;
  for (const ThinTerm& t : terms) {
    if (!map_matrix(to->x, t.x_TR, kRows) || !map_matrix(to->w, t.w_OR, 64))
      return cudaErrorNotSupported;
    to->first = static_cast<int>(t.first);
    to->end = static_cast<int>(t.end());
    to->steps = static_cast<int>(blocks_for(t.x_TR.dim(1), kStep));
    ++to;
  }
  return launch<true>(context, maps, added, 1);
}

}  // namespace capstan::cuda
