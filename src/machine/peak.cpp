#include "machine/peak.h"

#include <algorithm>
#include <chrono>

#include "ops/elementwise.h"
#include "ops/linear.h"

namespace capstan {
namespace {

constexpr int64_t kSideOnGpu = 8192, kSideOnCpu = 768;

double measure(Device device, DType type, bool tf32) {
  const int64_t n = device == Device::cuda ? kSideOnGpu : kSideOnCpu;
  Arena arena(Arena::Heap{}, device);
  Queue q(device, arena);
  q.allow_tf32(tf32);
  const Buffer x = arena.make(Category::workspace, type, {n, n}, "x");
  const Buffer w = arena.make(Category::workspace, type, {n, n}, "w");
  const Buffer y = arena.make(Category::workspace, type, {n, n}, "y");
  // Zeros would make a GPU unrealistically fast.
  fill_normal(q, x, 1, {.seed = 1});
  fill_normal(q, w, 1, {.seed = 2});
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    q.synchronize();
    const auto start = std::chrono::steady_clock::now();
    linear(q, y, x, w, {});
    q.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / best;
}

double measure_on_gpu(DType type, bool tf32) {
  // The matrices, and as much again for kernels that are loaded on first use.
  const int64_t needed = 3 * kSideOnGpu * kSideOnGpu * size_of(type) + (int64_t{128} << 20);
  if (free_device_memory() < needed) return 0;
  try {
    return measure(Device::cuda, type, tf32);
  } catch (const Error& e) {  // other processes use memory, too
    if (e.fault() != Fault::does_not_fit) throw;
    return 0;
  }
}

}  // namespace

double gemm_peak(Device device, DType type, bool tf32) {
  return device == Device::cuda ? measure_on_gpu(type, tf32)
                                : measure(Device::cpu, DType::f32, false);
}

}  // namespace capstan
