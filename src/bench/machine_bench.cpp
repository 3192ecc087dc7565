#include "bench/machine_bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "bench/bench_ops.h"
#include "bench/step_times.h"
#include "machine/name.h"

namespace capstan {
namespace {

using Unit = BenchRow::Unit;

std::vector<NumberType> types_on(Device device) {
  if (device != Device::cuda) return {{"f32", DType::f32}, {"bf16", DType::bf16}};
  std::vector<NumberType> types = {
      {"f32", DType::f32}, {"tf32", DType::f32, true}, {"f16", DType::f16}};
  if (computes_bf16(device)) types.push_back({"bf16", DType::bf16});
  if (multiplies_fp8(device)) types.push_back({"fp8", DType::bf16, false, true});
  return types;
}

class Bench {
 public:
  Bench(Device device, const BenchSizes& sizes, const BenchProgress& begin)
      : device_(device), s_(sizes), begin_(begin), types_(types_on(device)) {
    result_.calibration.name = machine_name(device);
    result_.calibration.device = device;
    result_.calibration.date = fmt::format(
        "{:%Y-%m-%d}",
        fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
    const bool gpu = device == Device::cuda;
    count_ = gpu ? 5 : 2;
    for (const NumberType& t : types_) {
      count_ += 3 + std::ssize(s_.squares);
      if (!t.fp8) count_ += 3 + 2 * std::ssize(s_.documents);
    }
    count_ += gpu ? std::ssize(types_) : std::ssize(kCpuPrecisions) * std::ssize(s_.steps);
  }

  BenchResult run() {
    measure_memory();
    for (const NumberType& type : types_) measure_ops(type);
    if (device_ == Device::cuda)
      for (const NumberType& type : types_) measure_step(type);
    else
      for (const Precision precision : kCpuPrecisions) measure_calls(precision);
    return std::move(result_);
  }

 private:
  void begin(const std::string& what, const char* type) {
    if (begin_) begin_(*type == 0 ? what : fmt::format("{}, {}", what, type), number_, count_);
    ++number_;
  }
  OpTime time(const std::string& what, const NumberType& type, Unit unit, const OpSetup& setup) {
    begin(what, type.name);
    const OpTime t = time_ops(device_, type.tf32, s_.seconds, setup);
    result_.rows.push_back(
        {what, type.name, unit, unit == Unit::flops ? t.flops_per_second() : t.bytes_per_second()});
    return t;
  }

  void measure_memory() {
    const NumberType none{"", DType::f32};
    Calibration& c = result_.calibration;
    begin("one call of a tiny op", "");
    c.seconds_per_call = time_ops(device_, false, s_.seconds, tiny_ops()).seconds / kTinyOps;
    result_.rows.push_back({"one call of a tiny op", "", Unit::seconds, c.seconds_per_call});
    c.bytes_per_second =
        time("copy, read and written", none, Unit::bytes, copying(s_.copied, Way::within))
            .bytes_per_second();
    if (device_ != Device::cuda) return;
    // Each byte crosses the bus once, but the account counts it on both sides.
    const auto across = [&](const std::string& what, Way way) {
      const double rate =
          time(what, none, Unit::bytes, copying(s_.copied, way)).bytes_per_second() / 2;
      return result_.rows.back().value = rate;
    };
    c.to_device_per_second = across("host to device, pinned", Way::to_device);
    c.to_host_per_second = across("device to host, pinned", Way::to_host);
    const std::string update = "AdamW, moments in host memory";
    begin(update, "");
    constexpr double kMomentBytes = 16;  // of a weight, read and written
    c.bus_per_second = kMomentBytes * static_cast<double>(2 * s_.inner * s_.hidden) /
                       time_ops(device_, false, s_.seconds, update_over_the_bus(s_)).seconds;
    result_.rows.push_back({update, "", Unit::bytes, c.bus_per_second});
  }

  void measure_ops(const NumberType& t) {
    TypeRates& rates = result_.calibration.types[t.name];
    for (const int64_t n : s_.squares)
      time(fmt::format("product {0} x {0} x {0}", n), t, Unit::flops, product(t, n, n, n));
    const int64_t outputs = 2 * s_.inner;
    time(fmt::format("product of {} tokens", s_.few), t, Unit::flops,
         product(t, s_.few, outputs, s_.hidden));
    const OpTime forward =
        time("gate and up", t, Unit::flops, product(t, s_.tokens, outputs, s_.hidden));
    const OpTime backward = time("gate and up, backward", t, Unit::flops,
                                 product_backward(t, s_.tokens, outputs, s_.hidden));
    // Everything but the products runs in bf16.
    if (t.fp8) rates = result_.calibration.types.at("bf16");
    rates.of(OpKind::product) =
        (forward.cost.flops + backward.cost.flops) / (forward.seconds + backward.seconds);
    if (t.fp8) return;
    rates.of(OpKind::head) =
        time("output head with loss", t, Unit::flops, head(t.type, s_)).flops_per_second();
    measure_attention(t, "attention", attend, rates.of(OpKind::attention), rates.attention_bytes);
    measure_attention(t, "attention, backward", attend_backward,
                      rates.of(OpKind::attention_backward), rates.attention_backward_bytes);
    rates.of(OpKind::elementwise) =
        time("rmsnorm, swiglu, rope", t, Unit::bytes, between_products(t.type, s_))
            .bytes_per_second();
    rates.of(OpKind::optimizer) = time("AdamW", t, Unit::bytes, update(t, s_)).bytes_per_second();
  }

  // Of documents of several lengths: its rates of FLOPs and of bytes, which take time one after the
  // other. Of one length: the rate of FLOPs alone.
  template <class Setup>
  void measure_attention(const NumberType& t, const char* name, const Setup& setup,
                         double& flops_per_second, double& bytes_per_second) {
    std::vector<CallTotal> calls;
    for (const Documents& d : s_.documents) {
      const OpTime op = time(fmt::format("{}, {} x {} tokens", name, d.count, d.length), t,
                             Unit::flops, setup(t.type, s_, d));
      calls.push_back({.flops = op.cost.flops, .bytes = op.cost.bytes, .seconds = op.seconds});
    }
    flops_per_second = calls.back().flops / calls.back().seconds;
    if (calls.size() == 1) return;
    const CallCost cost = fit_call_cost(calls);
    constexpr double kLeast = 0.1;  // of the longest call: else it has too little work to tell
    if (cost.per_flop * calls.back().flops < kLeast * calls.back().seconds || cost.per_byte == 0)
      return;
    flops_per_second = 1 / cost.per_flop;
    bytes_per_second = 1 / cost.per_byte;
  }

  std::optional<StepTimes> measure_step(const BenchStep& s, const StepSetup& setup,
                                        const std::string& type) {
    const std::string what = name_of(s);
    begin(what, type.c_str());
    if (!step_fits(setup, s, room_for(device_))) return std::nullopt;
    const StepTimes times = time_step(setup, s, s_.seconds);
    result_.rows.push_back({what, type, Unit::seconds, times.seconds});
    return times;
  }

  // On a GPU, the measured step corrects the sum of its ops.
  void measure_step(const NumberType& t) {
    const StepSetup setup{device_, precision_of(t), t.tf32};
    const BenchStep& step = s_.steps.front();
    const auto times = measure_step(step, setup, t.name);
    if (!times) return;
    const double predicted = predict_step(setup, step, result_.calibration);
    TypeRates& rates = result_.calibration.types[t.name];
    rates.step_seconds = times->seconds;
    rates.step_predicted = predicted;
  }

  // On a CPU, the ops of several steps give the cost of their calls.
  void measure_calls(Precision precision) {
    const std::string name(name_of(precision));
    std::vector<StepTimes> steps;
    for (const BenchStep& s : s_.steps)
      if (const auto times = measure_step(s, {device_, precision}, name)) steps.push_back(*times);
    if (const auto costs = step_costs(steps)) result_.calibration.precisions.emplace(name, *costs);
  }

  Device device_;
  const BenchSizes& s_;
  const BenchProgress& begin_;
  std::vector<NumberType> types_;
  int64_t number_ = 0, count_ = 0;
  BenchResult result_;
};

}  // namespace

BenchResult bench_machine(Device device, const BenchSizes& sizes, const BenchProgress& begin) {
  return Bench(device, sizes, begin).run();
}

}  // namespace capstan
