#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tensor/device.h"
#include "tensor/memory_plan.h"
#include "tensor/tensor.h"

namespace capstan {

class Arena;

// Owns a tensor's memory. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { release(); }

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  operator const Tensor&() const { return tensor_; }
  explicit operator bool() const { return arena_ != nullptr; }

  void release();  // releases it now

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  Tensor tensor_;
  Category category_{};
  int64_t bytes_ = 0;
  size_t index_ = 0;  // index of the request in its phase
  size_t phase_ = 0;
  uint64_t visit_ = 0;  // of the phase
  int slot_ = 0;
  bool planned_kept_ = false;
};

// The source of all buffers of a run. The same program runs twice:
//
//   1. On a recording arena, each request is recorded with its category and lifetime, and the
//      tensor has no memory. plan() packs the requests.
//   2. On an arena made from that plan, the n-th request of a phase gets the n-th planned offset in
//      one allocation. A request may be smaller than planned (a smaller batch is a view of the same
//      buffers); a larger one, another category, one too many, or more live buffers than planned
//      is a bug and throws.
//
// Requests outside a phase belong to the setup: they are made once and stay. A phase may be entered
// any number of times and makes the same requests each time. An arena made from a plan never
// touches the heap for a request. Not thread safe.
class Arena {
 public:
  struct Heap {};
  struct Pinned {};
  Arena();  // recording
  // Replaying, in one allocation on the device; throws Fault::does_not_fit if there is too little
  // memory.
  explicit Arena(const MemoryPlan& plan, Device device = Device::cpu)
      : Arena(plan, device, false) {}
  // Replaying, in pinned host memory: the GPU reads and writes it at the same address, over the
  // bus, and copies to it need no host thread. An empty plan pins nothing; any other needs a GPU.
  // Throws Fault::does_not_fit if the system cannot pin as much.
  Arena(const MemoryPlan& plan, Pinned) : Arena(plan, Device::cuda, true) {}
  // Allocates each request separately: for tests and small tools.
  explicit Arena(Heap, Device device = Device::cpu);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Memory aligned to kBufferAlignment: zeros in the setup, uninitialized in a phase. `name` must
  // outlive the arena (a literal).
  Buffer make(Category category, DType dtype, const Shape& shape, const char* name);

  // While the guard lives, requests belong to the phase of that name. Phases do not nest, and all
  // buffers of a phase must be released before it ends; otherwise the next phase() or plan()
  // throws.
  class Phase {
   public:
    Phase(Phase&& other) noexcept : arena_(other.arena_) { other.arena_ = nullptr; }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    ~Phase();

   private:
    friend class Arena;
    explicit Phase(Arena* arena) : arena_(arena) {}
    Arena* arena_;
  };
  Phase phase(const char* name);
  // A phase whose buffers may outlive it, such as the forward pass of a micro-batch whose backward
  // pass comes later: those that did when it was recorded have memory of their own in each of
  // `count` slots, and are released in later phases of the same slot. So the phases of several
  // slots may follow each other in any order. Recording one slot after the other is enough for the
  // offsets; MemoryPlan::highest is what was live while recording. While anything is kept in a
  // slot, there are only phases with slots.
  struct Slot {
    int index = 0, count = 1;
  };
  Phase phase(const char* name, const Slot& slot);

  bool recording() const { return mode_ == Mode::record; }
  Device device() const { return device_; }  // the device that accesses the memory
  bool pinned() const { return pinned_; }
  // Whether the tensor lies in the single allocation of a replaying arena.
  bool holds(const Tensor& tensor) const;
  // The packed recording; recording arenas only.
  MemoryPlan plan() const;

  // What has been handed out so far, measured like MemoryPlan::highest: a setup buffer counts from
  // its request on, even after its release.
  const ByCategory& highest() const { return highest_; }
  // The same of what is handed out now.
  const ByCategory& live() const { return live_; }
  // The phase that requests belong to now, "" outside of one, and a number for each visit of one.
  std::string_view phase_name() const {
    return phase_ == 0 ? std::string_view() : plan_.phases[phase_].name;
  }
  uint64_t visit() const { return visit_; }
  // The single allocation of a replaying arena.
  int64_t allocated_bytes() const { return allocated_; }

 private:
  friend class Buffer;
  enum class Mode { record, replay, heap };

  Arena(const MemoryPlan& plan, Device device, bool pinned);
  void give_back(Buffer& buffer);
  size_t next_planned(Category category, int64_t bytes, const char* name);
  size_t find_phase(const char* name) const;
  Phase enter(const char* name);
  void leave();

  Mode mode_;
  Device device_ = Device::cpu;
  bool pinned_ = false;
  MemoryPlan plan_;
  size_t phase_ = 0;   // index into plan_.phases
  size_t cursor_ = 0;  // next request of this phase
  size_t setup_cursor_ = 0;
  bool known_ = false;  // recording a phase again: its requests are matched, not added
  int64_t event_ = 0;
  uint64_t visit_ = 0;    // of a phase, counted
  int64_t in_phase_ = 0;  // live buffers made in this visit, or the last; those not of a slot:
  int64_t passing_ = 0;   // … that must not outlive it
  bool in_slot_ = false;  // the visit is of a phase with slots
  int slot_ = 0;
  std::vector<int64_t> kept_;  // by slot: live buffers of earlier visits
  ByCategory live_{};
  ByCategory highest_{};
  std::byte* memory_ = nullptr;
  int64_t allocated_ = 0;
};

}  // namespace capstan
