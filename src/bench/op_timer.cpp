#include "bench/op_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ops/elementwise.h"

namespace capstan {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void call_once(Queue& q, const OpCall& call) {
  const auto phase = q.arena().phase("op");
  call(q);
}

RunPlan plan_of(Device device, const OpSetup& setup) {
  Arena arena, host;
  Queue q(Device::sim, arena, host, {.device = device});
  Operands operands(q);
  call_once(q, setup(operands));
  return {arena.plan(), host.plan()};
}

}  // namespace

Tensor Operands::make(Arena& arena, DType type, const Shape& shape) {
  buffers_.push_back(arena.make(Category::data, type, shape, "operand"));
  return *buffers_.back();
}

Tensor Operands::filled(DType type, const Shape& shape, float value) {
  const Tensor t = zeros(type, shape);
  fill(q_, t, value);
  return t;
}

Tensor Operands::normal(DType type, const Shape& shape, float deviation) {
  const Tensor t = zeros(type, shape);
  fill_normal(q_, t, deviation, {.seed = buffers_.size()});
  return t;
}

Tensor Operands::weights(DType type, const Shape& shape) {
  return normal(type, shape, 1 / std::sqrt(static_cast<float>(shape[shape.rank() - 1])));
}

Tensor Operands::of(const std::vector<int32_t>& values) {
  const Tensor t = zeros(DType::i32, {std::ssize(values)});
  q_.upload(t, values.data());
  return t;
}

double median_seconds(double budget_seconds, const std::function<void()>& once, double patience) {
  constexpr size_t kLeast = 3, kMost = 50;
  const auto first = Clock::now();
  once();
  if (const double seconds = since(first); seconds > patience) return seconds;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < kLeast || (times.size() < kMost && since(start) < budget_seconds)) {
    const auto begin = Clock::now();
    once();
    times.push_back(since(begin));
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

OpTime time_ops(Device device, bool tf32, double budget_seconds, const OpSetup& setup,
                double patience) {
  constexpr double kRepeatSeconds = 0.005;  // many times the cost of waiting for a GPU
  const RunPlan plan = plan_of(device, setup);
  Arena arena(plan.device, device), host(plan.host, Arena::Pinned{});
  Queue q(device, arena, host);
  q.allow_tf32(tf32);
  Operands operands(q);
  const OpCall call = setup(operands);
  call_once(q, call);  // the first call tunes the products
  q.synchronize();
  q.reset_totals();
  const auto start = Clock::now();
  call_once(q, call);
  q.synchronize();
  const double one = std::max(since(start), 1e-7);
  const Cost cost = q.total();
  if (one > patience) return {one, cost};
  const auto calls = static_cast<int>(std::clamp(std::ceil(kRepeatSeconds / one), 1.0, 1000.0));
  const double seconds = median_seconds(budget_seconds, [&] {
    for (int i = 0; i < calls; ++i) call_once(q, call);
    q.synchronize();
  });
  return {seconds / calls, cost};
}

}  // namespace capstan
