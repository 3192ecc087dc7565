#include "plan/quick.h"

#include <algorithm>

namespace capstan {
namespace {

// Bytes of a frozen weight, without the scales of its blocks.
double bytes_of(Quantize quantize, double otherwise) {
  switch (quantize) {
    case Quantize::none: return otherwise;
    case Quantize::int8: return 1;
    default: return 0.5;
  }
}

double values_per_parameter(const OptimizerOptions& o) {
  if (o.kind == OptimizerKind::sgd) return o.momentum > 0 ? 1 : 0;
  return 2;
}

}  // namespace

QuickMemory quick_memory(const TrainOptions& o) {
  const ModelSpec spec = make_spec(o.model, o.decay, o.lora, o.quantize);
  const auto all = static_cast<double>(make_spec(o.model).parameter_count());
  const auto trained = static_cast<double>(spec.trainable_count());
  const PrecisionTypes types = types_of(o.precision);
  const auto weight = static_cast<double>(size_of(types.compute));
  const double moment = o.optimizer.kind == OptimizerKind::adamw8bit ? 1 : weight;
  return {.model = all * bytes_of(o.quantize, weight),
          .batch = static_cast<double>(o.limits.tokens * o.model.hidden) * weight,
          .optimizer = trained * values_per_parameter(o.optimizer) * moment};
}

int64_t copy_bytes(const ModelConfig& model) {
  constexpr int64_t kBytesOfParameter = 2;
  return kBytesOfParameter * make_spec(model).parameter_count();
}

Copies copies_of(const ModelConfig& model, int64_t bytes_of_gpu) {
  const int64_t bytes = copy_bytes(model);
  const int64_t room = std::max<int64_t>(1, bytes_of_gpu);
  return {room / bytes, (bytes - 1) / room + 1};
}

double flops_per_token(const ModelConfig& c, double sequence, FlopConvention convention) {
  const auto all = static_cast<double>(make_spec(c).parameter_count());
  const double attention = static_cast<double>(c.layers * c.q_width()) * sequence;
  if (convention == FlopConvention::whole) return 6 * all + 12 * attention;
  const auto embedding = static_cast<double>(c.vocab * c.hidden);
  return 6 * (all - (c.tied ? 0 : embedding)) + 6 * attention;
}

}  // namespace capstan
