#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "data/batch/step_batches.h"

namespace {
int64_t allocations = 0;  // since the program began; the tests use one thread
}

// Replaces the allocator of the whole test program, to count.
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace capstan {
namespace {

TEST(Allocation, AStepTakesNoMemory) {
  Dataset data;
  for (int32_t i = 0; i < 50; ++i) {
    std::vector<int32_t> tokens(static_cast<size_t>(i % 9 + 2), i);
    data.add(tokens, 1);
  }
  for (const bool packed : {true, false}) {
    Sampler sampler(data.size(), 8, 1);
    MicroBatches micro(data, 3, {.max_seq_length = 7, .vocab = 50, .packed = packed});
    int64_t targets = 0;
    const int64_t before = allocations;
    for (int64_t step = 0; step < 3 * sampler.steps_per_epoch(); ++step) {
      micro.start(sampler.ids(step));
      while (const HostBatch* batch = micro.next()) targets += batch->targets;
    }
    EXPECT_EQ(allocations, before);
    EXPECT_EQ(targets, 3 * count(data, 7).targets);
  }
}

TEST(Allocation, ALookAtTheNextStepTakesNoMemory) {
  Dataset data;
  for (int32_t i = 0; i < 50; ++i)
    data.add(std::vector<int32_t>(static_cast<size_t>(i % 9 + 2), i), 1);
  StepBatches batches(data, 8, 3, 1, {.max_seq_length = 7, .vocab = 50});
  int64_t targets = 0;
  const int64_t before = allocations;
  for (int64_t step = 0; step < 3 * 7; ++step) {
    while (const HostBatch* batch = batches.of(step).next()) targets += batch->targets;
    EXPECT_NE(batches.of(step + 1).peek(), nullptr);
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(targets, 3 * count(data, 7).targets);
}

}  // namespace
}  // namespace capstan
