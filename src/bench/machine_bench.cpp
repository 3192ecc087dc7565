#include "bench/machine_bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>

#include "bench/bench_ops.h"
#include "bench/step_times.h"
#include "machine/name.h"
#include "ops/cpu/blas.h"

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

// An op with its rate, once it was measured.
struct Op {
  BenchRow row;
  OpTime time;
};

// A training step with its times, once it was measured: not if it does not fit, or takes too long.
struct Step {
  const BenchStep* step = nullptr;
  StepSetup setup;
  std::string type;
  double predicted = 0;  // by the rates of its ops
  std::optional<StepTimes> times = {};
};

class Bench {
 public:
  Bench(Device device, const BenchSizes& sizes, const BenchProgress& begin)
      : device_(device),
        s_(sizes),
        types_(types_on(device)),
        // What other programs do on processors hardly delays a GPU.
        turns_(begin, Turns::watch_processors(), device == Device::cpu ? s_.turns : 1, s_.limit) {
    result_.calibration.name = machine_name(device);
    result_.calibration.device = device;
    if (device == Device::cpu) result_.calibration.kernels = cpu::blas().name();
    result_.calibration.date = fmt::format(
        "{:%Y-%m-%d}",
        fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  }

  BenchResult run() {
    prepare_memory();
    for (const NumberType& type : types_) prepare_ops(type);
    turns_.expect(std::ssize(measurements_) + number_of_steps());
    take_all();
    for (const auto& derive : derive_) derive();
    for (const Op& op : ops_) result_.rows.push_back(op.row);
    prepare_steps();
    take_all();
    keep_steps();
    return std::move(result_);
  }

 private:
  void add(const std::string& what, const std::string& type,
           std::function<std::function<void()>()> take) {
    measurements_.push_back(
        {.name = type.empty() ? what : fmt::format("{}, {}", what, type), .take = std::move(take)});
  }
  // `value`: of the row, from the time of the op.
  const OpTime* op(const std::string& what, const NumberType& type, Unit unit, const OpSetup& setup,
                   std::function<double(const OpTime&)> value) {
    Op& op = ops_.emplace_back(Op{{what, type.name, unit}, {}});
    add(what, type.name, [this, &op, setup, tf32 = type.tf32, value = std::move(value)] {
      const OpTime t = time_ops(device_, tf32, s_.seconds, setup, s_.patience);
      return [&op, t, value] {
        op.time = t;
        op.row.value = value(t);
      };
    });
    return &op.time;
  }
  const OpTime* flops(const std::string& what, const NumberType& type, const OpSetup& setup) {
    return op(what, type, Unit::flops, setup, [](const OpTime& t) { return t.flops_per_second(); });
  }
  const OpTime* bytes(const std::string& what, const NumberType& type, const OpSetup& setup) {
    return op(what, type, Unit::bytes, setup, [](const OpTime& t) { return t.bytes_per_second(); });
  }

  void prepare_memory() {
    const NumberType none{"", DType::f32};
    Calibration& c = result_.calibration;
    const OpTime* const tiny = op("one call of a tiny op", none, Unit::seconds, tiny_ops(),
                                  [](const OpTime& t) { return t.seconds / kTinyOps; });
    const OpTime* const copy =
        bytes("copy, read and written", none, copying(s_.copied, Way::within));
    derive_.emplace_back([&c, tiny, copy] {
      c.seconds_per_call = tiny->seconds / kTinyOps;
      c.bytes_per_second = copy->bytes_per_second();
    });
    if (device_ != Device::cuda) return;
    // Each byte crosses the bus once, but the account counts it on both sides.
    const auto across = [](const OpTime& t) { return t.bytes_per_second() / 2; };
    const OpTime* const to_device =
        op("host to device, pinned", none, Unit::bytes, copying(s_.copied, Way::to_device), across);
    const OpTime* const to_host =
        op("device to host, pinned", none, Unit::bytes, copying(s_.copied, Way::to_host), across);
    constexpr double kMomentBytes = 16;  // of a weight, read and written
    const double moments = kMomentBytes * static_cast<double>(2 * s_.inner * s_.hidden);
    const auto over_the_bus = [moments](const OpTime& t) { return moments / t.seconds; };
    const OpTime* const update = op("AdamW, moments in host memory", none, Unit::bytes,
                                    update_over_the_bus(s_), over_the_bus);
    derive_.emplace_back([&c, to_device, to_host, update, across, over_the_bus] {
      c.to_device_per_second = across(*to_device);
      c.to_host_per_second = across(*to_host);
      c.bus_per_second = over_the_bus(*update);
    });
  }

  void prepare_ops(const NumberType& t) {
    TypeRates& rates = result_.calibration.types[t.name];
    for (const int64_t n : s_.squares)
      flops(fmt::format("product {0} x {0} x {0}", n), t, product(t, n, n, n));
    const int64_t outputs = 2 * s_.inner;
    flops(fmt::format("product of {} tokens", s_.few), t, product(t, s_.few, outputs, s_.hidden));
    const OpTime* const forward =
        flops("gate and up", t, product(t, s_.tokens, outputs, s_.hidden));
    const OpTime* const backward =
        flops("gate and up, backward", t, product_backward(t, s_.tokens, outputs, s_.hidden));
    derive_.emplace_back([this, &rates, forward, backward, fp8 = t.fp8] {
      // Everything but the products runs in bf16.
      if (fp8) rates = result_.calibration.types.at("bf16");
      rates.of(OpKind::product) =
          (forward->cost.flops + backward->cost.flops) / (forward->seconds + backward->seconds);
    });
    if (t.fp8) return;
    const OpTime* const loss = flops("output head with loss", t, head(t.type, s_));
    prepare_attention(t, "attention", attend, rates.of(OpKind::attention), rates.attention_bytes);
    prepare_attention(t, "attention, backward", attend_backward,
                      rates.of(OpKind::attention_backward), rates.attention_backward_bytes);
    const OpTime* const between = bytes("rmsnorm, swiglu, rope", t, between_products(t.type, s_));
    const OpTime* const adamw = bytes("AdamW", t, update(t, s_));
    derive_.emplace_back([&rates, loss, between, adamw] {
      rates.of(OpKind::head) = loss->flops_per_second();
      rates.of(OpKind::elementwise) = between->bytes_per_second();
      rates.of(OpKind::optimizer) = adamw->bytes_per_second();
    });
  }

  // Of documents of several lengths: its rates of FLOPs and of bytes, which take time one after the
  // other. Of one length: the rate of FLOPs alone.
  template <class Setup>
  void prepare_attention(const NumberType& t, const char* name, const Setup& setup,
                         double& flops_per_second, double& bytes_per_second) {
    std::vector<const OpTime*> times;
    for (const Documents& d : s_.documents)
      times.push_back(flops(fmt::format("{}, {} x {} tokens", name, d.count, d.length), t,
                            setup(t.type, s_, d)));
    derive_.emplace_back([times, &flops_per_second, &bytes_per_second] {
      std::vector<CallTotal> calls;
      for (const OpTime* op : times)
        calls.push_back({.flops = op->cost.flops, .bytes = op->cost.bytes, .seconds = op->seconds});
      flops_per_second = calls.back().flops / calls.back().seconds;
      if (calls.size() == 1) return;
      const CallCost cost = fit_call_cost(calls);
      constexpr double kLeast = 0.1;  // of the longest call: else it has too little work to tell
      if (cost.per_flop * calls.back().flops < kLeast * calls.back().seconds || cost.per_byte == 0)
        return;
      flops_per_second = 1 / cost.per_flop;
      bytes_per_second = 1 / cost.per_byte;
    });
  }

  int64_t number_of_steps() const {
    return device_ == Device::cuda ? std::ssize(types_)
                                   : std::ssize(kCpuPrecisions) * std::ssize(s_.steps);
  }

  void prepare_step(const BenchStep& step, const StepSetup& setup, const std::string& type) {
    Step& s = steps_.emplace_back(Step{&step, setup, type});
    s.predicted = predict_step(setup, step, result_.calibration);
  }
  // The shortest first, so that the time that is left goes to them.
  void prepare_steps() {
    if (device_ == Device::cuda)
      for (const NumberType& t : types_)
        prepare_step(s_.steps.front(), {device_, precision_of(t), t.tf32}, t.name);
    else
      for (const Precision precision : kCpuPrecisions)
        for (const BenchStep& step : s_.steps)
          prepare_step(step, {device_, precision}, std::string(name_of(precision)));
    std::vector<Step*> order;
    for (Step& s : steps_) order.push_back(&s);
    if (device_ == Device::cpu)
      std::stable_sort(order.begin(), order.end(),
                       [](const Step* a, const Step* b) { return a->predicted < b->predicted; });
    for (Step* s : order) add(name_of(*s->step), s->type, [this, s] { return take(*s); });
  }

  bool is_needed(const Step& s) const {
    constexpr int kLeast = 3;  // of a precision: calls have a time of their own, FLOPs and bytes
    return device_ == Device::cuda ||
           std::count_if(steps_.begin(), steps_.end(), [&](const Step& other) {
             return other.times && other.type == s.type;
           }) < kLeast;
  }
  std::function<void()> take(Step& s) {
    constexpr double kSteps = 2;  // at least: the first one, and one that counts
    const bool late = turns_.seconds_left() < kSteps * s.predicted;
    if ((late && !is_needed(s)) || !step_fits(s.setup, *s.step, room_for(device_))) return [] {};
    const StepTimes times = time_step(s.setup, *s.step, s_.seconds, s_.patience);
    return [&s, times] { s.times = times; };
  }

  // On a GPU, the measured step corrects the sum of its ops. On a CPU, the ops of several steps
  // give the cost of their calls.
  void keep_steps() {
    std::map<std::string, std::vector<StepTimes>> of_precision;
    for (const Step& s : steps_) {
      if (!s.times) continue;
      result_.rows.push_back({name_of(*s.step), s.type, Unit::seconds, s.times->seconds});
      if (device_ == Device::cuda) {
        TypeRates& rates = result_.calibration.types[s.type];
        rates.step_seconds = s.times->seconds;
        rates.step_predicted = s.predicted;
      } else {
        of_precision[s.type].push_back(*s.times);
      }
    }
    for (const auto& [name, steps] : of_precision)
      if (const auto costs = step_costs(steps))
        result_.calibration.precisions.emplace(name, *costs);
  }

  void take_all() {
    turns_.run(measurements_);
    for (const Measurement& m : measurements_)
      if (m.others > kDisturbing) result_.disturbed.push_back({m.name, m.others});
    result_.measurements += std::ssize(measurements_);
    measurements_.clear();
  }

  Device device_;
  const BenchSizes& s_;
  std::vector<NumberType> types_;
  Turns turns_;
  std::vector<Measurement> measurements_;
  std::deque<Op> ops_;  // at places that do not change
  std::deque<Step> steps_;
  std::vector<std::function<void()>> derive_;  // rates, from the times of ops
  BenchResult result_;
};

}  // namespace

BenchResult bench_machine(Device device, const BenchSizes& sizes, const BenchProgress& begin) {
  return Bench(device, sizes, begin).run();
}

}  // namespace capstan
