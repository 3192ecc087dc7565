#include "tensor/memory_plan.h"

#include <algorithm>

namespace capstan {
namespace {

// Packs the buffers of one phase above `floor`; returns the height reached.
int64_t place(std::vector<PlannedBuffer>& buffers, int64_t floor) {
  std::vector<PlannedBuffer*> order;
  order.reserve(buffers.size());
  for (auto& b : buffers) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });

  int64_t height = floor;
  std::vector<const PlannedBuffer*> placed;  // by offset
  for (PlannedBuffer* b : order) {
    int64_t offset = floor;
    for (const PlannedBuffer* other : placed) {
      if (other->begin >= b->end || b->begin >= other->end) continue;
      if (other->offset >= offset + b->bytes) break;  // the gap below `other` is large enough
      offset = std::max(offset, other->offset + other->bytes);
    }
    b->offset = offset;
    height = std::max(height, offset + b->bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), b,
                         [](const auto* x, const auto* y) { return x->offset < y->offset; }),
        b);
  }
  return height;
}

struct Change {
  int64_t event;
  int64_t bytes;  // negative at the end of a lifetime
  const PlannedBuffer* buffer;
};

// Replays one phase over time, on top of the setup buffers.
void find_peak(MemoryPlan& plan, const PlannedPhase& phase, const ByCategory& persistent) {
  std::vector<Change> changes;
  for (const auto& b : phase.buffers) {
    changes.push_back({b.begin, b.bytes, &b});
    if (b.end != PlannedBuffer::kForever) changes.push_back({b.end, -b.bytes, &b});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.event < b.event; });

  ByCategory live = persistent;
  int64_t total = 0;
  for (const int64_t bytes : live) total += bytes;
  for (const Change& c : changes) {
    at(live, c.buffer->category) += c.bytes;
    total += c.bytes;
    auto& highest = at(plan.highest, c.buffer->category);
    highest = std::max(highest, at(live, c.buffer->category));
    if (total > plan.peak_bytes) {
      plan.peak_bytes = total;
      plan.peak_phase = phase.name;
      plan.peak_buffer = c.buffer->name;
      plan.at_peak = live;
    }
  }
}

}  // namespace

std::string_view name_of(Category category) {
  switch (category) {
    case Category::weights: return "weights";
    case Category::gradients: return "gradients";
    case Category::optimizer: return "optimizer";
    case Category::activations: return "activations";
    case Category::workspace: return "workspace";
    case Category::data: return "data";
    case Category::cache: return "cache";
    case Category::staging: return "staging";
    case Category::communication: return "communication";
  }
  return "?";
}

void pack(MemoryPlan& plan) {
  plan.total_bytes = 0;
  plan.peak_bytes = 0;
  plan.at_peak = {};
  plan.highest = {};
  ByCategory persistent{};
  int64_t floor = 0;
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    find_peak(plan, plan.phases[i], persistent);
    if (i == 0) {
      floor = place(plan.phases[0].buffers, 0);
      for (const auto& b : plan.phases[0].buffers)
        if (b.end == PlannedBuffer::kForever) at(persistent, b.category) += b.bytes;
      plan.total_bytes = floor;
    } else {
      plan.total_bytes = std::max(plan.total_bytes, place(plan.phases[i].buffers, floor));
    }
  }
}

}  // namespace capstan
