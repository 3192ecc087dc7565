#pragma once

#include <cuda.h>

#include "ops/cuda/product/wgmma.cuh"

// Hopper's copy engine (TMA), which moves boxes of matrices to and from shared memory, and the
// barriers that it signals. A CUtensorMap (tensor_map.h), passed to a kernel as a
// __grid_constant__, describes a box. Addresses of shared memory are those of shared_address.
//
// Two blocks may form a cluster: each can access the shared memory of the other.
namespace capstan::cuda {

// ---- barriers in shared memory -------------------------------------------------------------

// Its phases have the parities 0, 1, 0, …; one ends when `count` threads and all expected bytes
// have arrived.
__device__ inline void make_barrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// After all are initialized, by the thread that did it.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and announces bytes for the current phase.
__device__ inline void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives at a barrier of this block; the thread's earlier accesses are complete.
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at a barrier of any block of the cluster, by an address of address_in. It does not order
// accesses of the other block, nor does a wait there order this one's: that would need full fences,
// and only the tensor cores and the copy engine access what such barriers protect.
__device__ inline void arrive_there(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives when all copies (async_copy.cuh) that this thread issued are complete.
__device__ inline void arrive_when_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of the phase with this parity; the phase before the first has ended.
__device__ inline void wait_for_phase(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  do
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  while (ended == 0);
}

// Position in a ring of stages, and the parity of its round: that of the phase that ends when its
// stage is full.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// ---- clusters ------------------------------------------------------------------------------

__device__ inline int rank_in_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The same address in a block of the cluster.
__device__ inline uint32_t address_in(int rank, uint32_t address) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// A barrier of all threads of the cluster. Those of a warp must call it together.
__device__ inline void meet_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// ---- boxes ---------------------------------------------------------------------------------

// The box whose first value is at this column and row, which may be out of bounds: values outside
// arrive as zeros, and count as bytes.
__device__ inline void load_box(uint32_t to, const CUtensorMap* map, int column, int row,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same for a map of heads.
__device__ inline void load_box(uint32_t to, const CUtensorMap* map, int channel, int head, int row,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(channel), "r"(head), "r"(row), "r"(barrier)
      : "memory");
}
// To the same address in both blocks of a cluster, signalling the same barrier in each.
__device__ inline void load_box_in_both(uint32_t to, const CUtensorMap* map, int column, int row,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(uint16_t{3})
      : "memory");
}
// Values out of bounds are not written. A thread that is not `chosen` does nothing, by predication:
// around a branch the compiler would spill registers. Ends a group; call publish() and a barrier
// first.
__device__ inline void store_box(const CUtensorMap* map, int column, int row, uint32_t from,
                                 bool chosen) {
  asm volatile(
      "{ .reg .pred p;\n setp.ne.b32 p, %4, 0;\n"
      "@p cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n"
      "cp.async.bulk.commit_group; }" ::"l"(map),
      "r"(column), "r"(row), "r"(from), "r"(int{chosen})
      : "memory");
}
// Waits until all but this thread's last kLater stores have read their shared memory.
template <int kLater>
__device__ void finish_reading() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLater) : "memory");
}
// Waits until all have been written.
__device__ inline void finish_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Stores four 8 x 8 blocks as the tensor cores produce them, two values per word; lane l gives the
// address of row l % 8 of block l / 8.
__device__ inline void store_blocks(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

}  // namespace capstan::cuda
