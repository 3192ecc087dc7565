#include "tensor/queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/subnormals.h"
#include "tensor/cuda/calls.h"
#include "tensor/trace.h"

namespace capstan {
namespace {

// What a graph's kernels depend on, whatever the caller's key has: allow_tf32() may have been
// called since.
GraphKey with_products(GraphKey key, bool tf32) {
  key[0] = 2 * key[0] + (tf32 ? 1 : 0);
  return key;
}

}  // namespace

Queue::Queue(Device device, Arena& arena, Arena& host, CostModel model)
    : device_(device),
      model_(std::move(model)),
      arena_(arena),
      host_(target() == Device::cuda ? host : arena) {
  require((device == Device::sim) == arena.recording(), Fault::bug,
          "a sim queue goes with a recording arena, and no other does");
  require(&host_ == &arena_ || (device == Device::sim ? host_.recording() : host_.pinned()),
          Fault::bug, "a queue on {} with a host arena that is not {}", name_of(device),
          device == Device::sim ? "recording" : "pinned");
  if (device == Device::sim) return;
  require(device == arena.device(), Fault::bug, "a queue on {} with an arena on {}",
          name_of(device), name_of(arena.device()));
  if (device == Device::cpu) flush_subnormals();
  if (device == Device::cuda) cuda_ = cuda::make_context();
}

OpTotal& Queue::row(const Op& op) {
  for (OpTotal& r : totals_)
    if (std::string_view(r.op) == op.name) return r;
  return totals_.emplace_back(OpTotal{.op = op.name, .kind = op.kind, .calls = 0, .cost = {}});
}

void Queue::reset_totals() {
  for (OpTotal& r : totals_) r = {.op = r.op, .kind = r.kind, .calls = 0, .cost = {}};
}

Queue::Span Queue::account(const Op& op, const Cost& cost) {
  OpTotal& r = row(op);
  ++r.calls;
  r.cost.flops += cost.flops;
  r.cost.bytes += cost.bytes;
  if (device_ == Device::sim) {
    const double seconds = model_.seconds(op.kind, cost);
    r.seconds += seconds;
    if (trace_ != nullptr) trace_op(op, cost, seconds);
    now_[static_cast<size_t>(lane_)] += seconds;
    if (lane_ == Lane::compute) busy_[static_cast<size_t>(op.kind)] += seconds;
    return {nullptr, {}};
  }
  Span span = traced(op.name, cost);
  if (device_ == Device::cuda && !timed_) return span;
  span.total_ = &r;
  span.start_ = std::chrono::steady_clock::now();
  if (timed_) span.cuda_ = cuda_.get();
  return span;
}

Queue::Span::~Span() {
  if (cuda_ != nullptr) cuda::wait_quietly(*cuda_);
  if (total_ == nullptr && trace_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now();
  if (total_ != nullptr) total_->seconds += std::chrono::duration<double>(end - start_).count();
  if (trace_ != nullptr) trace_->end(event_, host_seconds(end));
}

double Queue::trace_clock() const {
  return device_ == Device::sim ? now() : host_seconds(std::chrono::steady_clock::now());
}

Queue::Span Queue::traced(const char* name, const Cost& cost) {
  Span span{nullptr, {}};
  if (trace_ == nullptr || device_ == Device::sim) return span;
  const double now = trace_clock();
  trace_->look(arena_, now);
  span.event_ = trace_->begin({.name = name,
                               .row = Trace::row(lane_),
                               .begin = now,
                               .flops = cost.flops,
                               .bytes = cost.bytes});
  span.trace_ = trace_;
  span.cuda_ = cuda_.get();
  return span;
}

void Queue::trace_op(const Op& op, const Cost& cost, double seconds) {
  trace_->look(arena_, now());
  trace_->add({.name = op.name,
               .row = Trace::row(lane_),
               .begin = now(),
               .end = now() + seconds,
               .flops = cost.flops,
               .bytes = cost.bytes});
}

// On sim, the clock has passed the op that the scratch is for.
void Queue::trace_scratch() {
  trace_->look(arena_, device_ == Device::sim ? trace_->last_begin() : trace_clock());
}

void Queue::wait_until(double time) {
  double& now = now_[static_cast<size_t>(lane_)];
  if (lane_ == Lane::compute) {
    waited_ += std::max(0.0, time - now);
    if (trace_ != nullptr && time > now) {
      trace_->look(arena_, now);
      trace_->add({.name = "wait", .row = Trace::row(lane_), .begin = now, .end = time});
    }
  }
  now = std::max(now, time);
}

void Queue::use(Lane lane) {
  if (target() != Device::cuda) return;
  lane_ = lane;
  if (cuda_) cuda::use_lane(*cuda_, lane);
}

void Queue::record(Event& event) {
  event.time_ = now();
  if (device_ != Device::cuda) return;
  if (!event.cuda_) event.cuda_ = cuda::make_event(event.timed_);
  cuda::record(*cuda_, *event.cuda_);
}

void Queue::wait(const Event& event) {
  if (device_ == Device::sim) wait_until(event.time_);
  if (device_ == Device::cuda && event.cuda_) cuda::wait_for(*cuda_, *event.cuda_);
}

void Event::wait() const {
  if (cuda_) cuda::wait(*cuda_);
}
bool Event::reached() const {
  return !cuda_ || cuda::reached(*cuda_);
}

double seconds_between(const Event& first, const Event& second) {
  return first.cuda_ && second.cuda_ ? cuda::seconds_between(*first.cuda_, *second.cuda_) : 0;
}

void LaneTimer::begin(Queue& q) {
  while (pairs_.size() < kMost) pairs_.push_back({Event::timed(), Event::timed()});
  if (count_ == kMost) add(first_);
  q.record(pairs_[(first_ + count_) % kMost][0]);
}

void LaneTimer::end(Queue& q) {
  q.record(pairs_[(first_ + count_++) % kMost][1]);
}

void LaneTimer::add(size_t pair) {
  pairs_[pair][1].wait();
  seconds_ += seconds_between(pairs_[pair][0], pairs_[pair][1]);
  first_ = (first_ + 1) % kMost;
  --count_;
}

double LaneTimer::seconds() {
  while (count_ > 0) add(first_);
  return seconds_;
}

void Queue::synchronize() {
  if (device_ == Device::cuda) cuda::wait(*cuda_);
}

bool Queue::begins_graph(const GraphKey& key) {
  if (device_ == Device::cuda && !timed_ && trace_ == nullptr) {
    const cuda::GraphUse use = cuda::begin_graph(*cuda_, with_products(key, tf32_));
    replaying_ = use == cuda::GraphUse::replayed;
    in_graph_ = use != cuda::GraphUse::none;
    return in_graph_;
  }
  return false;
}

void Queue::cut_graph() {
  cuda::cut_graph(*cuda_);
  replaying_ = false;
}

void Queue::resume_graph(bool replaying) {
  cuda::resume_graph(*cuda_);
  replaying_ = replaying;
}

void Queue::end_graph(const GraphKey& key, bool complete) {
  replaying_ = in_graph_ = false;
  cuda::end_graph(*cuda_, with_products(key, tf32_), complete);
}

void Queue::tell_measured() {
  if (device_ == Device::cuda) cuda::tell_measured(*cuda_);
}

void Queue::upload(const Tensor& to, const void* from) {
  require(to.contiguous(), Fault::bug, "upload to a strided tensor");
  const auto bytes = static_cast<size_t>(to.nbytes());
  if (bytes == 0) return;
  const Span span = traced("upload", {.bytes = static_cast<double>(bytes)});
  switch (device_) {
    case Device::cpu: std::memcpy(to.raw(), from, bytes); return;
    case Device::cuda:
      if (on_host(to)) {
        synchronize();  // work on the queue may still read or write it
        std::memcpy(to.raw(), from, bytes);
      } else {
        cuda::upload(*cuda_, to.raw(), from, bytes);
      }
      return;
    case Device::sim: return;
  }
}

void Queue::download(void* to, const Tensor& from) {
  require(from.contiguous(), Fault::bug, "download from a strided tensor");
  const auto bytes = static_cast<size_t>(from.nbytes());
  if (bytes == 0) return;
  const Span span = traced("download", {.bytes = static_cast<double>(bytes)});
  switch (device_) {
    case Device::cpu: std::memcpy(to, from.raw(), bytes); return;
    case Device::cuda:
      if (on_host(from)) {
        synchronize();
        std::memcpy(to, from.raw(), bytes);
      } else {
        cuda::download(*cuda_, to, from.raw(), bytes);
      }
      return;
    case Device::sim: std::memset(to, 0, bytes); return;
  }
}

Cost Queue::total() const {
  Cost sum;
  for (const OpTotal& r : totals_) {
    sum.flops += r.cost.flops;
    sum.bytes += r.cost.bytes;
  }
  return sum;
}

double Queue::seconds() const {
  double sum = 0;
  for (const OpTotal& r : totals_) sum += r.seconds;
  return sum;
}

}  // namespace capstan
