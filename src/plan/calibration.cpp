#include "plan/calibration.h"

#include <algorithm>
#include <climits>

namespace capstan {
namespace {

// Of what was measured and counts, with as many ranks or the nearest number; null without any.
template <class T, class Counts>
const T* nearest(const std::map<int, T>& measured, int ranks, const Counts& counts) {
  const T* found = nullptr;
  int distance = INT_MAX;
  for (const auto& [count, value] : measured)
    if (counts(value) && std::abs(count - ranks) < distance) {
      found = &value;
      distance = std::abs(count - ranks);
    }
  return found;
}

// Fraction of the bytes of an update, and of the norm of the gradients before it, that cross the
// bus if the state is in host memory.
double share_on_bus(const TrainOptions& o) {
  const PrecisionTypes t = types_of(o.precision);
  const bool few_bits = o.optimizer.kind == OptimizerOptions::Kind::adamw8bit;
  const auto moments = static_cast<double>(4 * (few_bits ? 1 : size_of(t.state)));
  const auto weights = static_cast<double>(2 * size_of(t.master));
  const auto rest =
      static_cast<double>(2 * size_of(t.grad) + (t.has_master() ? size_of(t.compute) : 0));
  const double state = moments + (o.sharding.offload && t.has_master() ? weights : 0);
  return state / (moments + weights + rest);
}

}  // namespace

void TypeRates::slow(OpKind kind, double times) {
  of(kind) /= times;
  if (kind == OpKind::attention) attention_bytes /= times;
  if (kind == OpKind::attention_backward) attention_backward_bytes /= times;
}

std::optional<Network> network_of(const Calibration& c, int ranks, int machines) {
  const Network* found = nearest(machines > 1 ? c.networks_across : c.networks, ranks,
                                 [](const Network&) { return true; });
  return found ? std::optional(*found) : std::nullopt;
}

bool all_measured(const Calibration& c, int ranks, int machines) {
  return !c.from_data_sheet && (ranks == 1 || network_of(c, ranks, machines));
}

const StepCosts* costs_of(const Calibration& c, int ranks, Precision precision) {
  const auto of = [&](const PrecisionCosts& costs) {
    const auto it = costs.find(name_of(precision));
    return it == costs.end() ? nullptr : &it->second;
  };
  if (const PrecisionCosts* together = ranks > 1 ? nearest(c.together, ranks, of) : nullptr)
    return of(*together);
  return of(c.precisions);
}

std::string_view type_of_products(const TrainOptions& o) {
  if (o.precision == Precision::fp8_mixed) return "fp8";
  if (const DType compute = types_of(o.precision).compute; is_narrow(compute))
    return name_of(compute);
  return uses_tf32(o) ? "tf32" : "f32";
}

CostModel cost_model(const Calibration& c, const TrainOptions& o) {
  require(c.device == o.device, Fault::usage,
          "the calibration is for {} (accelerator {}), but the plan is for accelerator {}; add "
          "--accelerator {}",
          c.name, name_of(c.device), name_of(o.device), name_of(c.device));
  const std::string_view type = type_of_products(o);
  const auto it = c.types.find(type);
  require(it != c.types.end(), Fault::usage, "the calibration of {} has no rates for {}; {}",
          c.name, type,
          type == "fp8" ? "'capstan bench' measures them on a GPU with FP8 support"
                        : "run 'capstan bench' there to measure them");
  const TypeRates& rates = it->second;
  CostModel m{.name = c.name,
              .device = c.device,
              .bytes_per_second = c.bytes_per_second,
              .seconds_per_call = c.seconds_per_call};
  m.flops_per_second = rates.of(OpKind::product);
  if (rates.step_predicted > 0) m.factor = rates.step_seconds / rates.step_predicted;
  // A GPU does ops one after the other, so a step that is shorter than their sum ran before the
  // card was at its limit of power, as it is in a long run.
  if (c.device == Device::cuda) m.factor = std::max(1.0, m.factor);
  for (const OpKind kind : kFlopKinds) m.rates(kind) = {rates.of(kind), c.bytes_per_second};
  for (const auto& [kind, bytes] :
       {std::pair(OpKind::attention, rates.attention_bytes),
        std::pair(OpKind::attention_backward, rates.attention_backward_bytes)})
    if (bytes > 0) m.rates(kind) = {rates.of(kind), bytes, std::nullopt, true};
  for (const OpKind kind : kByteKinds) m.rates(kind) = {.bytes_per_second = rates.of(kind)};
  m.rates(OpKind::copy) = {.bytes_per_second = c.bytes_per_second};
  const int neighbours = std::max(1, o.ranks.size / o.machines);
  if (const StepCosts* s = costs_of(c, neighbours, o.precision)) {
    m.factor = s->seconds / s->predicted;
    for (size_t i = 0; i < kOpKinds; ++i)
      m.kinds[i] = {1 / s->calls[i].per_flop, 1 / s->calls[i].per_byte, s->calls[i].per_call, true};
  }
  if ((o.optimizer.paged || o.sharding.offload) && c.device == Device::cuda) {
    // Half of the state's bytes go in each direction, both at once.
    const double bus = c.bus_per_second > 0
                           ? c.bus_per_second
                           : 2 * std::min(c.to_device_per_second, c.to_host_per_second);
    double& rate = m.rates(OpKind::optimizer)->bytes_per_second;
    rate = std::min(rate, bus / share_on_bus(o));
  }
  return m;
}

}  // namespace capstan
