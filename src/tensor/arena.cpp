#include "tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "base/units.h"
#include "tensor/cuda/calls.h"

namespace capstan {
namespace {

std::byte* map_host(int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, Fault::does_not_fit,
          "does not fit: the system gave no {} of memory ({})",
          format_bytes(static_cast<double>(bytes)), std::strerror(errno));
  // The system provides pages as zeros on first touch, and each setup offset has only one buffer:
  // so the setup starts as zeros, at no cost before it is used. Requests huge pages: fewer TLB
  // misses in the products. A hint: may fail.
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

std::byte* heap_host(int64_t bytes, const char* name) {
  void* memory = std::aligned_alloc(kBufferAlignment, static_cast<size_t>(bytes));
  require(memory != nullptr, Fault::does_not_fit, "does not fit: no memory for {} ({})", name,
          format_bytes(static_cast<double>(bytes)));
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept {
  *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  arena_ = std::exchange(other.arena_, nullptr);
  tensor_ = std::exchange(other.tensor_, Tensor());
  category_ = other.category_;
  bytes_ = other.bytes_;
  index_ = other.index_;
  phase_ = other.phase_;
  visit_ = other.visit_;
  slot_ = other.slot_;
  planned_kept_ = other.planned_kept_;
  return *this;
}

void Buffer::release() {
  if (arena_ == nullptr) return;
  arena_->give_back(*this);
  arena_ = nullptr;
  tensor_ = Tensor();
}

Arena::Arena() : mode_(Mode::record) {
  plan_.phases.push_back({"setup", {}});
}

Arena::Arena(Heap, Device device) : mode_(Mode::heap), device_(device) {}

Arena::Arena(const MemoryPlan& plan, Device device, bool pinned)
    : mode_(Mode::replay), device_(device), pinned_(pinned), plan_(plan) {
  require(!plan.phases.empty(), Fault::bug, "arena: a plan without a setup");
  if (plan.total_bytes == 0) return;
  if (device == Device::cpu) memory_ = map_host(plan.total_bytes);
  if (device == Device::cuda)
    memory_ = (pinned ? cuda::allocate_pinned : cuda::allocate)(plan.total_bytes);
  allocated_ = plan.total_bytes;
}

Arena::~Arena() {
  if (memory_ == nullptr) return;
  if (device_ == Device::cpu) munmap(memory_, static_cast<size_t>(allocated_));
  if (device_ != Device::cuda) return;
  if (pinned_)
    cuda::release_pinned(memory_, allocated_);
  else
    cuda::release(memory_);
}

bool Arena::holds(const Tensor& tensor) const {
  const std::less<const void*> before;  // of any two addresses
  return memory_ != nullptr && !before(tensor.raw(), memory_) &&
         before(tensor.raw(), memory_ + allocated_);
}

Buffer Arena::make(Category category, DType dtype, const Shape& shape, const char* name) {
  int64_t bytes = aligned_to_buffers(shape.numel() * size_of(dtype));
  Buffer buffer;
  buffer.planned_kept_ = mode_ == Mode::record;  // it is not known yet
  void* address = nullptr;
  switch (mode_) {
    case Mode::heap:
      if (device_ == Device::cpu) address = heap_host(std::max(bytes, kBufferAlignment), name);
      if (device_ == Device::cuda) address = cuda::allocate(std::max(bytes, kBufferAlignment));
      break;
    case Mode::record:
      if (!known_) {
        buffer.index_ = plan_.phases[phase_].buffers.size();
        plan_.phases[phase_].buffers.push_back(
            {name, category, bytes, event_++, PlannedBuffer::kForever, 0, in_phase_});
        break;
      }
      [[fallthrough]];
    case Mode::replay: {
      buffer.index_ = next_planned(category, bytes, name);
      // A smaller request still takes its whole planned range.
      const PlannedBuffer& planned = plan_.phases[phase_].buffers[buffer.index_];
      bytes = planned.bytes;
      if (planned.kept) buffer.planned_kept_ = true;
      if (memory_ != nullptr)
        address = memory_ + planned.offset + (planned.kept ? slot_ * plan_.slot_bytes : 0);
      break;
    }
  }
  buffer.arena_ = this;
  buffer.tensor_ = Tensor(address, dtype, shape);
  buffer.category_ = category;
  buffer.bytes_ = bytes;
  buffer.phase_ = phase_;
  buffer.visit_ = visit_;
  buffer.slot_ = slot_;
  if (phase_ != 0) {
    ++in_phase_;
    passing_ += !buffer.planned_kept_;
  }
  at(live_, category) += bytes;
  at(highest_, category) = std::max(at(highest_, category), at(live_, category));
  return buffer;
}

size_t Arena::next_planned(Category category, int64_t bytes, const char* name) {
  const PlannedPhase& phase = plan_.phases[phase_];
  require(cursor_ < phase.buffers.size(), Fault::bug,
          "arena: request '{}' in phase '{}' was not planned", name, phase.name);
  const PlannedBuffer& planned = phase.buffers[cursor_];
  require(
      planned.category == category && planned.name == name && bytes <= planned.bytes, Fault::bug,
      "arena: phase '{}' asks for {} bytes of '{}' ({}) where {} bytes of '{}' ({}) are planned",
      phase.name, bytes, name, name_of(category), planned.bytes, planned.name,
      name_of(planned.category));
  // Without this, a buffer that is kept too long would be overwritten silently.
  require(in_phase_ <= planned.beside, Fault::bug,
          "arena: {} buffers of phase '{}' are live at request '{}', {} are planned", in_phase_,
          phase.name, name, planned.beside);
  return cursor_++;
}

void Arena::give_back(Buffer& buffer) {
  if (mode_ == Mode::heap) {
    if (device_ == Device::cpu) std::free(buffer.tensor_.raw());
    if (device_ == Device::cuda) cuda::release(static_cast<std::byte*>(buffer.tensor_.raw()));
    at(live_, buffer.category_) -= buffer.bytes_;
    return;
  }
  // The memory of a setup buffer is never reused: it counts as live as long as the arena, so a
  // model may be destroyed before or after the plan is taken.
  if (buffer.phase_ == 0) return;
  at(live_, buffer.category_) -= buffer.bytes_;
  if (buffer.visit_ == visit_) {
    --in_phase_;
    passing_ -= !buffer.planned_kept_;
  } else {
    --kept_[static_cast<size_t>(buffer.slot_)];
  }
  if (mode_ != Mode::record) return;
  // A buffer that is released after its phase, and not in a slot, has no end there: plan() reports
  // it.
  PlannedPhase& phase = plan_.phases[buffer.phase_];
  int64_t& end = phase.buffers[buffer.index_].end;
  const bool in_time = phase.slots > 0 ? phase_ != 0 : !known_ && buffer.phase_ == phase_;
  if (in_time && end == PlannedBuffer::kForever) end = event_++;
}

size_t Arena::find_phase(const char* name) const {
  size_t i = 1;
  while (i < plan_.phases.size() && plan_.phases[i].name != name) ++i;
  return i;
}

Arena::Phase Arena::phase(const char* name) {
  if (mode_ == Mode::heap) return Phase(this);
  int64_t live = in_phase_;
  for (const int64_t kept : kept_) live += kept;
  require(live == 0, Fault::bug,
          "arena: phase '{}' begins while {} buffers of an earlier phase are live", name, live);
  in_slot_ = false;
  return enter(name);
}

Arena::Phase Arena::phase(const char* name, const Slot& slot) {
  if (mode_ == Mode::heap) return Phase(this);
  require(0 <= slot.index && slot.index < slot.count, Fault::bug, "arena: slot {} of {}",
          slot.index, slot.count);
  require(in_phase_ == 0, Fault::bug,
          "arena: phase '{}' begins while {} buffers of an earlier phase are live", name,
          in_phase_);
  if (kept_.size() < static_cast<size_t>(slot.count)) kept_.resize(static_cast<size_t>(slot.count));
  const int64_t kept = kept_[static_cast<size_t>(slot.index)];
  Phase entered = enter(name);
  in_slot_ = true;
  slot_ = slot.index;
  PlannedPhase& phase = plan_.phases[phase_];
  if (!known_) {
    phase.slots = slot.count;
    phase.found = kept;
  }
  require(slot.index < phase.slots && kept <= phase.found, Fault::bug,
          "arena: phase '{}' in slot {} of {} finds {} buffers there, {} are planned", name,
          slot.index, phase.slots, kept, phase.found);
  return entered;
}

Arena::Phase Arena::enter(const char* name) {
  require(phase_ == 0, Fault::bug, "arena: phase '{}' inside phase '{}'", name,
          plan_.phases[phase_].name);
  ++visit_;
  passing_ = 0;
  slot_ = 0;
  const size_t found = find_phase(name);
  known_ = found < plan_.phases.size();
  if (!known_) {
    require(mode_ == Mode::record, Fault::bug, "arena: phase '{}' was not planned", name);
    plan_.phases.push_back({name, {}});
  }
  phase_ = found;
  setup_cursor_ = std::exchange(cursor_, 0);
  return Phase(this);
}

Arena::Phase::~Phase() {
  if (arena_ != nullptr) arena_->leave();
}

void Arena::leave() {
  if (in_slot_) {
    if (!known_ && mode_ == Mode::record) plan_.phases[phase_].end = event_++;
    if (passing_ == 0) {  // otherwise the next phase() reports them
      kept_[static_cast<size_t>(slot_)] += std::exchange(in_phase_, 0);
      ++visit_;
    }
  }
  in_slot_ = false;
  phase_ = 0;
  cursor_ = setup_cursor_;
  known_ = false;
}

MemoryPlan Arena::plan() const {
  require(mode_ == Mode::record, Fault::bug, "arena: only a recording can be planned");
  for (size_t i = 1; i < plan_.phases.size(); ++i)
    for (const auto& b : plan_.phases[i].buffers)
      require(b.end != PlannedBuffer::kForever, Fault::bug, "arena: '{}' outlives its phase '{}'",
              b.name, plan_.phases[i].name);
  MemoryPlan plan = plan_;
  pack(plan);
  // What several slots keep at a time depends on the order of their phases, which was recorded.
  const bool in_slots = std::any_of(plan.phases.begin(), plan.phases.end(),
                                    [](const PlannedPhase& p) { return p.slots > 1; });
  if (in_slots) plan.highest = highest_;
  return plan;
}

}  // namespace capstan
