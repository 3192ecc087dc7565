#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include "tensor/arena.h"
#include "tensor/cost_model.h"
#include "tensor/device.h"
#include "tensor/lane.h"

namespace capstan {

namespace cuda {
class Context;  // a stream and library handles: tensor/cuda/context.h
}
class Trace;  // tensor/trace.h

// What a graph's kernels depend on: numbers chosen by the caller.
using GraphKey = std::array<int64_t, 6>;

using SecondsByKind = std::array<double, kOpKinds>;  // by OpKind

// Totals over all calls of one op.
struct OpTotal {
  const char* op = nullptr;
  OpKind kind{};
  int64_t calls = 0;
  Cost cost;
  double seconds = 0;  // measured on cpu and, if timed, on cuda; modelled on sim
};

// The work of a device, in order on each lane. Ops enqueue their work and may return before it is
// done (never on cpu). A queue belongs to one thread and has the device of its arena. Creating one
// on cpu turns on flush-to-zero (base/subnormals.h).
//
// Operands are in arena(), or in host(): host memory that the device can access, more slowly than
// its own. On cpu these are the same. A queue on cuda, or on sim in its place, takes a second
// arena, pinned or recording, if it needs one.
class Queue {
 public:
  // `arena` provides the scratch of ops. Both must outlive the queue.
  Queue(Device device, Arena& arena, CostModel model = {})
      : Queue(device, arena, arena, std::move(model)) {}
  // A CPU does not use `host`.
  Queue(Device device, Arena& arena, Arena& host, CostModel model = {});

  // The device that ops dispatch to; sim while a recorded graph is replayed.
  Device device() const { return replaying_ ? Device::sim : device_; }
  // The device that ops plan for: its own, or the one that sim models.
  Device target() const { return device_ == Device::sim ? model_.device : device_; }
  Arena& arena() const { return arena_; }
  Arena& host() const { return host_; }
  // Whether the host may also access the tensor in place, once the queue is done.
  bool on_host(const Tensor& tensor) const {
    return device_ == Device::cpu || (host_.pinned() && host_.holds(tensor));
  }

  // Accounts one call of `op` (a literal); the op's time runs until the span ends.
  class Span {
   public:
    Span(Span&& other) noexcept
        : total_(other.total_),
          start_(other.start_),
          cuda_(other.cuda_),
          trace_(other.trace_),
          event_(other.event_) {
      other.total_ = nullptr;
      other.cuda_ = nullptr;
      other.trace_ = nullptr;
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
    cuda::Context* cuda_;  // waits at the end, if ops are timed one by one
    Trace* trace_ = nullptr;
    size_t event_ = 0;  // of the trace, which ends with the span
  };
  [[nodiscard]] Span account(const Op& op, const Cost& cost);

  // Scratch for the current op, allocated here so that it is planned like every buffer.
  Buffer scratch(DType dtype, const Shape& shape, const char* name) {
    Buffer buffer = arena_.make(Category::workspace, dtype, shape, name);
    if (trace_ != nullptr) trace_scratch();
    return buffer;
  }

  // While it exists, ops go to another lane. A CPU does everything in order: it has one lane.
  class OnLane {
   public:
    OnLane(Queue& q, Lane lane) : q_(q), before_(q.lane_) { q.use(lane); }
    ~OnLane() { q_.use(before_); }
    OnLane(const OnLane&) = delete;
    OnLane& operator=(const OnLane&) = delete;

   private:
    Queue& q_;
    Lane before_;
  };
  // The event is the point that the current lane has reached after all its work so far.
  void record(Event& event);
  // What is put on the current lane from now on begins after the event, of whichever queue.
  void wait(const Event& event);

  // Waits until all work on the current lane is done. Throws Fault::device for errors of that work.
  void synchronize();

  // On cuda, timing an op means waiting for it: only on request, for a profile. It slows the run
  // down.
  void time_each_op(bool on) { timed_ = on; }

  // From now on, ops, waits and copies become events of `trace`, which must outlive that; null: no
  // longer. On cuda, each op is then waited for, and graphs are not used; totals() stay as they are
  // without.
  void trace_to(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }
  // The clock of its events: of the current lane on sim, else of the host, since any moment.
  double trace_clock() const;
  // An event until the span ends, if there is a trace; not on sim, where it would take no time.
  [[nodiscard]] Span traced(const char* name, const Cost& cost = {});

  // On cuda, matrix products are measured on their first call: logs that once. Call it when all of
  // them have run, as after a rehearsal.
  void tell_measured();

  // Whether ops may round the factors of f32 matrix products to TF32 (10 mantissa bits), which
  // cuda's tensor cores multiply several times faster. No effect on other devices.
  void allow_tf32(bool on) { tf32_ = on; }
  bool tf32() const { return tf32_; }

  // Runs the ops of `body` as one unit. On cuda, the second call with the same key records them as
  // a CUDA graph; from the third on, that graph is launched, and body runs only for its memory
  // requests and cost accounting. So everything that its kernels receive must follow from the key:
  // the same buffers at the same addresses, and Scalars and RandomKeys for numbers that change.
  // body must not copy to or from the host, or wait, except in eager(). Keeps the few most recently
  // used graphs.
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
  // Inside of a graph's body: runs what no graph may have, such as a collective, every time. The
  // graph is cut there; whether that happens must follow from its key, too.
  template <class Body>
  void eager(const Body& body) {
    if (!in_graph_) return body();
    const bool replaying = replaying_;
    cut_graph();
    body();
    resume_graph(replaying);
  }

  // Copies between host memory and a contiguous tensor of arena() or host(), after the work already
  // on the queue. A download is complete on return; an upload has read its source. On sim, upload
  // does nothing and download returns zeros.
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

  // The clock of a queue on sim, one for each lane: the modelled time of its ops, one after the
  // other, and of waiting for what happens beside them, such as communication.
  double now() const { return now_[static_cast<size_t>(lane_)]; }
  double waited() const { return waited_; }            // by the compute lane, of its time
  const SecondsByKind& busy() const { return busy_; }  // the compute lane, with its ops
  void wait_until(double time);

  // Totals since the start or the last reset, one row per op; rows without calls are unused.
  const std::deque<OpTotal>& totals() const { return totals_; }
  Cost total() const;
  double seconds() const;  // the sum over ops
  void reset_totals();

  cuda::Context& cuda() const { return *cuda_; }  // of a queue on cuda

 private:
  OpTotal& row(const Op& op);
  void trace_op(const Op& op, const Cost& cost, double seconds);
  void trace_scratch();
  bool begins_graph(const GraphKey& key);  // false: nothing to end
  void end_graph(const GraphKey& key, bool complete);
  void cut_graph();
  void resume_graph(bool replaying);
  void use(Lane lane);

  Device device_;
  CostModel model_;
  Arena& arena_;
  Arena& host_;
  std::deque<OpTotal> totals_;  // rows stay where they are: spans point to them
  std::shared_ptr<cuda::Context> cuda_;
  Lane lane_ = Lane::compute;
  std::array<double, kLanes> now_{};  // seconds; on sim
  double waited_ = 0;
  SecondsByKind busy_{};
  Trace* trace_ = nullptr;
  bool in_graph_ = false;   // a graph is recorded or replayed …
  bool replaying_ = false;  // … and now it is replayed
  bool timed_ = false;
  bool tf32_ = false;
};

// Runs an op on the queue's device: `cpu()` or `cuda()`. On sim the account is all it does.
template <class Cpu, class Cuda>
void dispatch(const Queue& q, const Cpu& cpu, const Cuda& cuda) {
  switch (q.device()) {
    case Device::cpu: return cpu();
    case Device::cuda: return cuda();
    case Device::sim: return;
  }
}

}  // namespace capstan
