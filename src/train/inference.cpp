#include "train/inference.h"

#include <algorithm>

#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "model/adapter.h"
#include "train/fit.h"

namespace capstan {
namespace {

int64_t longest_of(const InferenceOptions& o) {
  return std::max({o.limits.longest, o.positions, int64_t{1}});
}

MemoryPlan fitting_plan(const InferenceOptions& options) {
  MemoryPlan plan = Inference::plan(options);
  const int64_t available = available_memory();
  require(plan.total_bytes <= available, Fault::does_not_fit,
          "does not fit: needs {}, {} free. {} less",
          format_bytes(static_cast<double>(plan.total_bytes)),
          format_bytes(static_cast<double>(available)),
          options.precision == Precision::bf16_true
              ? "A shorter text or batch needs"
              : "--precision bf16-true and a shorter text or batch need");
  return plan;
}

}  // namespace

Precision inference_precision(const std::string& asked, const ModelConfig& model) {
  if (asked.empty()) return model.dtype == DType::bf16 ? Precision::bf16_true : Precision::f32_true;
  const Precision precision = parse_precision(asked);
  require(precision != Precision::bf16_mixed, Fault::usage,
          "precision: bf16-mixed is for training; use bf16-true or 32-true");
  return precision;
}

Inference::Inference(Queue& q, const InferenceOptions& o)
    : q_(q),
      merges_(o.merge),
      params_(q.arena(), make_spec(o.model, Decay::all, o.lora, o.quantize), o.precision,
              Gradients::none),
      model_(q, params_, Recompute::none, longest_of(o)) {
  if (o.limits.tokens > 0) {
    batch_ = std::make_unique<DeviceBatch>(q, o.limits, o.model);
    loss_ = q.arena().make(Category::data, DType::f64, {1}, "loss");
  }
  if (o.positions > 0)
    decoder_ =
        std::make_unique<Decoder>(q, model_, o.positions, std::min<int64_t>(o.positions, 512));
}

MemoryPlan Inference::plan(const InferenceOptions& options) {
  Arena arena;
  Queue q(Device::sim, arena);
  Inference inference(q, options);
  inference.rehearse();
  return arena.plan();
}

void Inference::rehearse() {
  if (batch_) {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, batch_->largest(), loss_);
  }
  if (decoder_) decoder_->rehearse(q_);
  if (merges_) merge();
}

void Inference::merge() {
  const auto phase = q_.arena().phase("merge");
  merge_adapters(q_, params_);
}

Evaluation Inference::evaluate(MicroBatches& data) {
  const double zero = 0;
  q_.upload(loss_, &zero);
  while (const HostBatch* host = data.next()) {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, batch_->upload(q_, *host), loss_);
  }
  return {q_.value<double>(loss_), data.targets()};
}

LoadedModel::LoadedModel(const ModelFiles& files, InferenceOptions options)
    : plan_([&] {
        options.model = files.config;
        if (files.adapter) options.lora = files.adapter->lora;
        return fitting_plan(options);
      }()),
      arena_(plan_),
      queue_(Device::cpu, arena_),
      model_(queue_, options) {
  verify_if_ours(files.base);
  if (files.adapter) verify_if_ours(files.folder);
  load_parameters(queue_, model_.params(), files.base);
  if (files.adapter) load_adapter(queue_, model_.params(), files.folder);
}

}  // namespace capstan
