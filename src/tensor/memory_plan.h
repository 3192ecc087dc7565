#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace capstan {

// What a buffer is for: the rows of every memory report.
enum class Category : uint8_t {
  weights,        // parameters, with their compute copies
  gradients,      // one per trainable parameter
  optimizer,      // moments
  activations,    // kept by the forward pass for the backward pass, and values passed between ops
  workspace,      // scratch inside one op
  data,           // token ids, labels, positions, tables
  cache,          // the KV cache
  staging,        // a copy of the state, written to disk while training continues
  communication,  // between ranks
};
inline constexpr int kCategories = 9;
std::string_view name_of(Category category);

using ByCategory = std::array<int64_t, kCategories>;
inline int64_t& at(ByCategory& bytes, Category c) {
  return bytes[static_cast<size_t>(c)];
}
inline int64_t at(const ByCategory& bytes, Category c) {
  return bytes[static_cast<size_t>(c)];
}

// One recorded request: live from event `begin` until before event `end`.
struct PlannedBuffer {
  std::string name;
  Category category{};
  int64_t bytes = 0;  // rounded up to kBufferAlignment
  int64_t begin = 0;
  int64_t end = kForever;
  int64_t offset = 0;
  int64_t beside = 0;  // live buffers of the same visit when this one is made
  bool kept = false;   // it outlives its phase, in a slot; `offset` is then that in slot 0

  static constexpr int64_t kForever = INT64_MAX;
};

// Offsets are multiples of this: a cache line, and enough for CUDA's widest accesses and tensor
// maps.
inline constexpr int64_t kBufferAlignment = 256;
inline int64_t aligned_to_buffers(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// A named, repeatable part of the program: its requests in order.
struct PlannedPhase {
  std::string name;
  std::vector<PlannedBuffer> buffers;
  // Of a phase that is visited in slots (Arena::Slot): how many, when its recording ended, and how
  // many buffers its slot had when it began.
  int slots = 0;
  int64_t end = 0;
  int64_t found = 0;
};

// All memory of one memory space of one rank, known before the run: `phases[0]` is the setup, whose
// buffers stay; the others are entered any number of times, one at a time.
struct MemoryPlan {
  std::vector<PlannedPhase> phases;

  int64_t slot_bytes = 0;   // of one slot; they lie one after the other, above the setup
  int64_t total_bytes = 0;  // the allocation: the packed height
  int64_t peak_bytes =
      0;  // live bytes at the peak; total_bytes - peak_bytes is lost to fragmentation
  std::string peak_phase;   // the phase of the peak…
  std::string peak_buffer;  // …and the request that reaches it
  ByCategory at_peak{};     // live bytes at the peak; adds up to peak_bytes
  ByCategory highest{};     // the peak of each category, each at its own time
};

// The plans of a run's memory spaces: device memory, and pinned host memory that a GPU accesses.
// For a CPU `host` is empty, since both are the same memory.
struct RunPlan {
  MemoryPlan device, host;
  // Communicator::digest of the simulated run, of each group by its name.
  std::vector<std::pair<std::string, uint64_t>> collectives = {};
};

// Chooses offsets so that buffers with overlapping lifetimes do not overlap in memory, and computes
// the totals. Greedy by size, lowest offset first; deterministic. What outlives a phase with slots
// has its place in each slot; the other buffers of such phases lie above all slots.
void pack(MemoryPlan& plan);

}  // namespace capstan
