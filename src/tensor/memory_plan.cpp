#include "tensor/memory_plan.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

namespace capstan {
namespace {

// Buffers that have their places, by offset. Most of the time of a plan is spent here, in finding
// those that live at the same time as another: lifetimes lie close together, and are compared many
// at once.
class PlacedBuffers {
 public:
  explicit PlacedBuffers(size_t most)
      : begins_(most + kAtOnce, INT32_MAX), ends_(begins_.size()), places_(begins_.size()) {}

  // The lowest place above `floor` that is free as long as the buffer lives.
  int64_t lowest(const PlannedBuffer& b, int64_t floor) const {
    int64_t offset = floor;
    const int32_t begin = event(b.begin), end = event(b.end);
    for (size_t first = 0; first < count_; first += kAtOnce) {
      std::array<uint8_t, kAtOnce> meet;
      const int32_t* const begins = &begins_[first];
      const int32_t* const ends = &ends_[first];
      for (size_t i = 0; i < kAtOnce; ++i)
        meet[i] = static_cast<uint8_t>(begins[i] < end) & static_cast<uint8_t>(ends[i] > begin);
      for (size_t i = 0; i < kAtOnce; i += sizeof(uint64_t)) {
        uint64_t eight;
        std::memcpy(&eight, &meet[i], sizeof(eight));
        if (eight == 0) continue;
        for (size_t j = i; j < i + sizeof(eight); ++j) {
          if (meet[j] == 0) continue;
          const Place& other = places_[first + j];
          if (other.first_byte >= offset + b.bytes) return offset;  // the gap below is large enough
          offset = std::max(offset, other.above);
        }
      }
    }
    return offset;
  }
  void insert(const PlannedBuffer& b) {
    const auto end = places_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto at = std::upper_bound(
        places_.begin(), end, b.offset,
        [](int64_t offset, const auto& other) { return offset < other.first_byte; });
    const auto index = at - places_.begin();
    ++count_;
    insert(begins_, index, event(b.begin));
    insert(ends_, index, event(b.end));
    insert(places_, index, Place{b.offset, b.offset + b.bytes});
  }

 private:
  static constexpr size_t kAtOnce = 64;
  struct Place {
    int64_t first_byte, above;
  };

  static int32_t event(int64_t e) { return static_cast<int32_t>(std::min<int64_t>(e, INT32_MAX)); }
  template <class T>
  void insert(std::vector<T>& all, std::ptrdiff_t index, const T& value) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count_);
    std::move_backward(all.begin() + index, end - 1, end);
    all[static_cast<size_t>(index)] = value;
  }

  size_t count_ = 0;
  std::vector<int32_t> begins_, ends_;  // events; behind the last one, of buffers that never live
  std::vector<Place> places_;
};

// Packs buffers above `floor`; returns the height reached.
int64_t place(std::vector<PlannedBuffer*> order, int64_t floor) {
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  int64_t height = floor;
  PlacedBuffers placed(order.size());
  for (PlannedBuffer* b : order) {
    b->offset = placed.lowest(*b, floor);
    placed.insert(*b);
    height = std::max(height, b->offset + b->bytes);
  }
  return height;
}

int64_t place(std::vector<PlannedBuffer>& buffers, int64_t floor) {
  std::vector<PlannedBuffer*> all;
  all.reserve(buffers.size());
  for (auto& b : buffers) all.push_back(&b);
  return place(std::move(all), floor);
}

struct Change {
  int64_t event;
  int64_t bytes;  // negative at the end of a lifetime
  const PlannedBuffer* buffer;
};

int64_t sum(const ByCategory& bytes) {
  int64_t total = 0;
  for (const int64_t b : bytes) total += b;
  return total;
}

std::vector<Change> changes_of(const PlannedPhase& phase) {
  std::vector<Change> changes;
  for (const auto& b : phase.buffers) {
    changes.push_back({b.begin, b.bytes, &b});
    if (b.end != PlannedBuffer::kForever) changes.push_back({b.end, -b.bytes, &b});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.event < b.event; });
  return changes;
}

// Replays one phase over time, on top of what else is live.
void find_peak(MemoryPlan& plan, const PlannedPhase& phase, const ByCategory& persistent) {
  ByCategory live = persistent;
  int64_t total = sum(live);
  for (const Change& c : changes_of(phase)) {
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

// All phases with slots as one, which begins and ends with an empty slot.
struct InSlots {
  PlannedPhase all;
  int slots = 0;
};
InSlots in_slots(MemoryPlan& plan) {
  InSlots found;
  for (PlannedPhase& phase : plan.phases) {
    if (phase.slots == 0) continue;
    found.slots = std::max(found.slots, phase.slots);
    found.all.name = phase.name;
    for (PlannedBuffer& b : phase.buffers) {
      b.kept = b.end > phase.end;
      found.all.buffers.push_back(b);
    }
  }
  return found;
}

// The most that is kept in a slot between two phases.
ByCategory most_kept(const MemoryPlan& plan, const PlannedPhase& all) {
  ByCategory most{};
  for (const PlannedPhase& phase : plan.phases) {
    if (phase.slots == 0) continue;
    ByCategory live{};
    for (const PlannedBuffer& b : all.buffers)
      if (b.begin < phase.end && b.end > phase.end) at(live, b.category) += b.bytes;
    if (sum(live) > sum(most)) most = live;
  }
  return most;
}

// Places what is kept in slots above `floor`, and above that the rest of the phases with slots;
// `persistent` is live besides.
void pack_slots(MemoryPlan& plan, int64_t floor, ByCategory persistent) {
  const InSlots found = in_slots(plan);
  if (found.slots == 0) return;
  const ByCategory kept = most_kept(plan, found.all);
  for (size_t c = 0; c < kept.size(); ++c) persistent[c] += (found.slots - 1) * kept[c];
  find_peak(plan, found.all, persistent);
  std::vector<PlannedBuffer*> in_slot;
  for (PlannedPhase& phase : plan.phases)
    for (PlannedBuffer& b : phase.buffers)
      if (phase.slots > 0 && b.kept) in_slot.push_back(&b);
  plan.slot_bytes = place(in_slot, floor) - floor;
  const int64_t above = floor + found.slots * plan.slot_bytes;
  plan.total_bytes = std::max(plan.total_bytes, above);
  for (PlannedPhase& phase : plan.phases) {
    if (phase.slots == 0) continue;
    std::vector<PlannedBuffer*> passing;
    for (PlannedBuffer& b : phase.buffers)
      if (!b.kept) passing.push_back(&b);
    plan.total_bytes = std::max(plan.total_bytes, place(passing, above));
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
  plan.slot_bytes = 0;
  ByCategory persistent{};
  int64_t floor = 0;
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    if (plan.phases[i].slots > 0) continue;
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
  pack_slots(plan, floor, persistent);
}

}  // namespace capstan
