#pragma once

#include "ops/elementwise.h"
#include "ops/reference.h"

// What tests of ranks that are threads compute with.
namespace capstan::test {

// A rank's memory.
struct Memory {
  explicit Memory(Device device = Device::cpu) : arena(Arena::Heap{}, device), q(device, arena) {}
  Arena arena;
  Queue q;

  // The same values on every device.
  Buffer random(DType type, int64_t n, int rank, uint64_t seed) {
    Arena heap(Arena::Heap{}, Device::cpu);
    Queue on_cpu(Device::cpu, heap);
    const Buffer values = heap.make(Category::data, type, {n}, "values");
    fill_normal(on_cpu, values, 1, {.seed = seed, .sample = static_cast<uint64_t>(rank)});
    Buffer x = arena.make(Category::data, type, {n}, "x");
    q.upload(x, values->raw());
    return x;
  }
};

inline Values random_values(DType type, int64_t n, int rank, uint64_t seed) {
  Memory m;
  return values_of(m.q, m.random(type, n, rank, seed));
}

inline Values sum_over_ranks(DType type, int64_t n, int ranks, uint64_t seed) {
  std::vector<float> sums(static_cast<size_t>(n));
  for (int r = 0; r < ranks; ++r) {
    const Values x = random_values(type, n, r, seed);
    for (size_t i = 0; i < x.size(); ++i) sums[i] += static_cast<float>(x[i]);
  }
  Values result;
  for (const float s : sums) result.push_back(type == DType::bf16 ? double{float(bf16(s))} : s);
  return result;
}

inline Values part(const Values& all, int rank, int ranks) {
  const auto each = std::ssize(all) / ranks;
  return {all.begin() + rank * each, all.begin() + (rank + 1) * each};
}

}  // namespace capstan::test
