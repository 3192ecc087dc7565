// Matrix products of many sizes alone on this machine's GPU, many calls in one graph: what is lost
// where the result has few tiles. A line of CSV for each size.
//
// usage: bench_product_shapes

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "ops/elementwise.h"
#include "ops/linear.h"

namespace capstan {
namespace {

constexpr int kCalls = 20, kRepeats = 15;

struct Sizes {
  int64_t tokens, outputs, inputs;
};
enum class Kind : uint8_t { forward, data, weight };

// Requests the operands, and runs one kind of product `calls` times.
void run_calls(Queue& q, const Sizes& s, Kind kind, int repeats, std::vector<double>* seconds) {
  std::vector<Buffer> all;
  const auto random = [&](const Shape& shape) -> Tensor {
    all.push_back(q.arena().make(Category::data, DType::bf16, shape, "operand"));
    if (seconds != nullptr) fill_normal(q, all.back(), 1, {.seed = all.size()});
    return all.back();
  };
  const Tensor x = random({s.tokens, s.inputs}), y = random({s.tokens, s.outputs});
  const Tensor w = random({s.outputs, s.inputs});
  for (int i = 0; i < repeats; ++i) {
    q.synchronize();
    const auto phase = q.arena().phase("calls");
    const auto start = std::chrono::steady_clock::now();
    q.graph({static_cast<int64_t>(kind)}, [&] {
      for (int call = 0; call < kCalls; ++call) switch (kind) {
          case Kind::forward: linear(q, y, x, w, {}); break;
          case Kind::data: linear_backward_data(q, x, y, w); break;
          case Kind::weight: linear_backward_weight(q, w, {}, y, x, Write::replace); break;
        }
    });
    q.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (seconds != nullptr) seconds->push_back(took.count() / kCalls);
  }
}

double measured(const Sizes& s, Kind kind) {
  Arena recording;
  Queue sim(Device::sim, recording, {.device = Device::cuda});
  run_calls(sim, s, kind, 1, nullptr);
  Arena arena(recording.plan(), Device::cuda);
  Queue q(Device::cuda, arena);
  std::vector<double> seconds;
  run_calls(q, s, kind, kRepeats, &seconds);
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

void measure(const Sizes& s) {
  const double flops = 2e-12 * static_cast<double>(s.tokens * s.outputs * s.inputs);
  fmt::print("{},{},{}", s.tokens, s.outputs, s.inputs);
  for (const Kind kind : {Kind::forward, Kind::data, Kind::weight}) {
    const double seconds = measured(s, kind);
    fmt::print(",{:.2f},{:.1f}", 1e6 * seconds, flops / seconds);
  }
  fmt::print("\n");
}

int run() {
  require(cuda_present(), Fault::device, "no NVIDIA GPU on this machine");
  fmt::print("tokens,outputs,inputs,forward_us,TFLOP/s,data_us,TFLOP/s,weight_us,TFLOP/s\n");
  // Maps of several widths, whole and of a rank that shares them with others.
  for (const int64_t tokens : {64, 256, 512, 1024, 2048, 4096, 8192, 16384})
    for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{4096, 4096},
                                          {12288, 4096},
                                          {1024, 1024},
                                          {2048, 2048},
                                          {768, 6144},
                                          {6144, 768},
                                          {2304, 6144},
                                          {1536, 4096},
                                          {4096, 512},
                                          {5632, 2048},
                                          {8192, 8192}})
      measure({tokens, outputs, inputs});
  return 0;
}

}  // namespace
}  // namespace capstan

int main() {
  try {
    return capstan::run();
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "bench_product_shapes: {}\n", e.what());
    return static_cast<int>(e.fault());
  }
}
