#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "tensor/arena.h"
#include "tensor/cost_model.h"
#include "tensor/device.h"

namespace capstan {

namespace cuda {
class Context;  // a stream and its libraries' handles: tensor/cuda/context.h
}

// What a graph's kernels depend on: numbers of the caller's choice.
using GraphKey = std::array<int64_t, 6>;

// All calls of one op: the roofline's row.
struct OpTotal {
  const char* op = nullptr;
  int64_t calls = 0;
  Cost cost;
  double seconds = 0;  // measured on cpu and, where timed, on cuda; modelled on sim
};

// A device's work, in order. Ops are given a queue, put their work on it, and may return before it
// is done (on cpu they never do). A queue belongs to one thread, and is of its arena's device.
// Where one on cpu was made, subnormal numbers are 0 (base/subnormals.h).
//
// Its operands have their place in arena(), or in host(): memory of the host that the device
// reaches, slower than its own. On cpu these are one. A queue on cuda, or on sim in its place, is
// given a second arena, pinned or recording, where it needs one.
class Queue {
 public:
  // `arena` serves the scratch that ops need. Both must outlive the queue.
  Queue(Device device, Arena& arena, CostModel model = {})
      : Queue(device, arena, arena, std::move(model)) {}
  // `host` has no part in the work for a CPU.
  Queue(Device device, Arena& arena, Arena& host, CostModel model = {});

  // Where ops compute; sim while a graph is replayed, which has been recorded.
  Device device() const { return replaying_ ? Device::sim : device_; }
  // The device that ops plan for: its own, or the one that sim imitates.
  Device target() const { return device_ == Device::sim ? model_.device : device_; }
  Arena& arena() const { return arena_; }
  Arena& host() const { return host_; }
  // Whether the host, too, may read and write the tensor where it lies, once the queue is done.
  bool on_host(const Tensor& tensor) const {
    return device_ == Device::cpu || (host_.pinned() && host_.holds(tensor));
  }

  // States the cost of one call of `op` (a literal); the op's time runs until the span ends.
  class Span {
   public:
    Span(Span&& other) noexcept : total_(other.total_), start_(other.start_), cuda_(other.cuda_) {
      other.total_ = nullptr;
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span();

   private:
    friend class Queue;
    Span(OpTotal* total, std::chrono::steady_clock::time_point start, cuda::Context* cuda = nullptr)
        : total_(total), start_(start), cuda_(cuda) {}
    OpTotal* total_;
    std::chrono::steady_clock::time_point start_;
    cuda::Context* cuda_;  // waited for, where ops are timed one by one
  };
  [[nodiscard]] Span account(const char* op, const Cost& cost);

  // Scratch for the op that is running: made here so that it is planned like every buffer.
  Buffer scratch(DType dtype, const Shape& shape, const char* name) {
    return arena_.make(Category::workspace, dtype, shape, name);
  }

  // Waits until everything on the queue is done. Throws Fault::device for what failed on the way.
  void synchronize();

  // On cuda an op's time is known only by waiting for it: on request, for a profile. It slows the
  // run down.
  void time_each_op(bool on) { timed_ = on; }

  // On cuda matrix products are measured when they are first met: says so in the log, once. Call it
  // when all of them have been met, as after a rehearsal.
  void tell_measured();

  // Whether ops may round the factors of products of f32 matrices to TF32 (10 bits after the
  // point), which cuda's tensor cores multiply several times faster. It changes nothing on other
  // devices.
  void allow_tf32(bool on) { tf32_ = on; }
  bool tf32() const { return tf32_; }

  // The ops of `body` as one piece of work. On cuda they are recorded as a CUDA graph when the same
  // key comes for the second time, and from the third on that graph is launched, and body is called
  // only for the requests and the account that it makes. So everything that its kernels are given
  // must follow from the key: the same buffers in the same places, and Scalars and RandomKeys
  // where numbers change. body must not copy to or from the host, or wait. A few graphs are kept,
  // those that were used last.
  template <class Body>
  void graph(const GraphKey& key, const Body& body) {
    if (!begins_graph(key)) return body();
    try {
      body();
    } catch (...) {
      end_graph(key, false);
      throw;
    }
    end_graph(key, true);
  }

  // Copies between host memory and a contiguous tensor of arena() or host(), after the work already
  // on the queue. A download is done on return; an upload has read its memory. On sim, upload does
  // nothing and download gives zeros.
  void upload(const Tensor& to, const void* from);
  void download(void* to, const Tensor& from);
  template <class T>
  T value(const Tensor& scalar) {
    T result{};
    require(scalar.numel() == 1, Fault::bug, "value of tensor {}", scalar.shape());
    scalar.as<T>();  // checks the type
    download(&result, scalar);
    return result;
  }

  // Totals since the start or the last reset; rows with `op` null are unused.
  const std::array<OpTotal, 48>& totals() const { return totals_; }
  Cost total() const;
  double seconds() const;  // the sum over ops
  void reset_totals() { totals_ = {}; }

  cuda::Context& cuda() const { return *cuda_; }  // of a queue on cuda

 private:
  OpTotal& row(std::string_view op, const char* literal);
  bool begins_graph(const GraphKey& key);  // false: nothing to end
  void end_graph(const GraphKey& key, bool complete);

  Device device_;
  CostModel model_;
  Arena& arena_;
  Arena& host_;
  std::array<OpTotal, 48> totals_{};
  std::shared_ptr<cuda::Context> cuda_;
  bool replaying_ = false;
  bool timed_ = false;
  bool tf32_ = false;
};

}  // namespace capstan
