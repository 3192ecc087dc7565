#include "bench/machine_bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/rng.h"
#include "bench/bench_ops.h"
#include "machine/name.h"
#include "plan/fit.h"
#include "plan/predict.h"

namespace capstan {
namespace {

using Unit = BenchRow::Unit;

constexpr std::array kOnCpu = {Precision::f32_true, Precision::bf16_mixed, Precision::bf16_true};

std::vector<NumberType> types_on(Device device) {
  if (device != Device::cuda) return {{"f32", DType::f32}, {"bf16", DType::bf16}};
  std::vector<NumberType> types = {
      {"f32", DType::f32}, {"tf32", DType::f32, true}, {"f16", DType::f16}};
  if (computes_bf16(device)) types.push_back({"bf16", DType::bf16});
  if (multiplies_fp8(device)) types.push_back({"fp8", DType::bf16, false, true});
  return types;
}

// ---- the step ------------------------------------------------------------------------------

struct StepTimes {
  double measured = 0, predicted = 0;     // 0: it does not fit
  std::array<CallTotal, kOpKinds> calls;  // of one step, by OpKind; not available on a GPU
};

Dataset random_documents(const BenchStep& s) {
  Dataset data;
  const Rng rng({.seed = 1});
  uint64_t draw = 0;
  for (int64_t d = 0; d < s.micro_batches * s.documents; ++d) {
    std::vector<int32_t> tokens(static_cast<size_t>(s.length) + 1);
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(s.model.vocab)));
    data.add(tokens, 0);
  }
  return data;
}

TrainOptions step_options(const BenchStep& s, Device device, Precision precision, bool tf32) {
  TrainOptions o;
  o.device = device;
  o.model = s.model;
  o.precision = precision;
  o.tf32 = tf32;
  o.recompute = s.recompute;
  if (s.sgd) o.optimizer.kind = OptimizerKind::sgd;
  o.single_micro_batch = s.micro_batches == 1;
  o.schedule = {.lr = 1e-4, .decay = Schedule::Decay::constant};
  return o;
}

std::array<CallTotal, kOpKinds> totals_of(const Queue& q) {
  std::array<CallTotal, kOpKinds> all;
  for (const OpTotal& r : q.totals()) {
    CallTotal& t = all[static_cast<size_t>(r.kind)];
    t.calls += static_cast<double>(r.calls);
    t.flops += r.cost.flops;
    t.bytes += r.cost.bytes;
    t.seconds += r.seconds;
  }
  return all;
}

StepTimes time_step(Precision precision, bool tf32, const BenchStep& s, double seconds,
                    const Calibration& calibration) {
  const Dataset samples = random_documents(s);
  const BatchOptions batches{.max_seq_length = s.length, .vocab = s.model.vocab};
  TrainOptions o = step_options(s, calibration.device, precision, tf32);
  o.limits = limits_of(samples, s.documents, batches);
  const RunPlan plan = Trainer::plan(o);
  if (!fits(plan, room_for(o.device))) return {};
  std::vector<int64_t> ids(static_cast<size_t>(samples.size()));
  std::iota(ids.begin(), ids.end(), 0);
  MicroBatches data(samples, s.documents, batches);
  StepTimes times;
  times.predicted = estimate_step(o, cost_model(calibration, o), data, ids).seconds;
  Arena arena(plan.device, o.device), host(plan.host, Arena::Pinned{});
  Queue q(o.device, arena, host);
  Trainer trainer(q, o);
  trainer.params().initialize(q, 1);
  StepBatches steps(samples, samples.size(), s.documents, 1, batches);
  // Without the first step, the one that took the median time: what other programs do to the
  // others does not count.
  struct Step {
    double seconds;
    std::array<CallTotal, kOpKinds> calls;
  };
  std::vector<Step> all;
  int64_t step = 0;
  median_seconds(seconds, [&] {
    q.reset_totals();
    const auto start = std::chrono::steady_clock::now();
    trainer.step(steps.of(step), step, &steps);
    q.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (step++ > 0) all.push_back({took.count(), totals_of(q)});
  });
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::nth_element(all.begin(), middle, all.end(),
                   [](const Step& a, const Step& b) { return a.seconds < b.seconds; });
  times.measured = middle->seconds;
  times.calls = middle->calls;
  return times;
}

// ---- all of it -----------------------------------------------------------------------------

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
    count_ +=
        device == Device::cuda ? std::ssize(types_) : std::ssize(kOnCpu) * std::ssize(s_.steps);
  }

  BenchResult run() {
    measure_memory();
    for (const NumberType& type : types_) measure_ops(type);
    if (device_ == Device::cuda)
      for (const NumberType& type : types_) measure_step(type);
    else
      for (const Precision precision : kOnCpu) measure_calls(precision);
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

  StepTimes measure_step(const BenchStep& s, Precision precision, bool tf32, const char* name) {
    const std::string what = fmt::format("step, {} x {} x {} tokens, {} channels", s.micro_batches,
                                         s.documents, s.length, s.model.hidden);
    begin(what, name);
    const StepTimes times = time_step(precision, tf32, s, s_.seconds, result_.calibration);
    if (times.measured > 0) result_.rows.push_back({what, name, Unit::seconds, times.measured});
    return times;
  }

  // On a GPU, the measured step corrects the sum of its ops.
  void measure_step(const NumberType& t) {
    TypeRates& rates = result_.calibration.types[t.name];
    const StepTimes times = measure_step(s_.steps.front(), precision_of(t), t.tf32, t.name);
    rates.step_seconds = times.measured;
    rates.step_predicted = times.predicted;
  }

  // On a CPU, the ops of several steps give the cost of their calls.
  void measure_calls(Precision precision) {
    StepCosts costs;
    std::array<std::vector<CallTotal>, kOpKinds> calls;
    const std::string name(name_of(precision));
    for (const BenchStep& s : s_.steps) {
      const StepTimes times = measure_step(s, precision, false, name.c_str());
      if (times.measured == 0) continue;
      costs.seconds += times.measured;
      for (size_t i = 0; i < kOpKinds; ++i) calls[i].push_back(times.calls[i]);
    }
    if (costs.seconds == 0) return;
    for (size_t i = 0; i < kOpKinds; ++i) {
      costs.calls[i] = fit_call_cost(calls[i]);
      for (const CallTotal& t : calls[i]) costs.predicted += costs.calls[i].of(t);
    }
    result_.calibration.precisions.emplace(name, costs);
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
