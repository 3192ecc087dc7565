#include "train/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace capstan {
namespace {

double clip_limit(const TrainOptions& o) {
  return o.max_norm > 0 ? o.max_norm : std::numeric_limits<double>::infinity();
}

Gradients gradient_life(const TrainOptions& o) {
  return o.single_micro_batch ? Gradients::in_step : Gradients::kept;
}

[[noreturn]] void not_finite(const char* what, double value, int64_t step,
                             std::span<const int64_t> samples) {
  fail(Fault::usage,
       "step {}: the {} is {}; the weights are as they were before this step. It had the samples "
       "{}{}. Lower the learning rate, set train.max_norm, or look at those samples",
       step + 1, what, value, fmt::join(samples.first(std::min<size_t>(samples.size(), 64)), ", "),
       samples.size() > 64 ? fmt::format(" and {} more", samples.size() - 64) : "");
}

}  // namespace

void BatchLimits::include(const BatchLimits& other) {
  tokens = std::max(tokens, other.tokens);
  documents = std::max(documents, other.documents);
  longest = std::max(longest, other.longest);
}

BatchLimits limits_of(const Dataset& dataset, int64_t micro_batch, const BatchOptions& options) {
  const int64_t longest = count(dataset, options.max_seq_length).longest;
  const int64_t rounded = (longest + options.multiple - 1) / options.multiple * options.multiple;
  return {.tokens = largest_batch(dataset, micro_batch, options),
          .documents = std::min(micro_batch, dataset.size()),
          .longest = options.packed ? longest
                                    : std::min(rounded, std::max(longest, options.max_seq_length))};
}

Trainer::Trainer(Queue& q, const TrainOptions& options)
    : q_(q),
      options_(options),
      params_(q.arena(), make_spec(options.model, options.decay), options.precision,
              gradient_life(options)),
      model_(q, params_, options.recompute,
             std::max(options.limits.longest, options.sample_positions)),
      optimizer_(q, params_, options.optimizer),
      clip_(q, clip_limit(options)) {
  const auto tensor = [&](DType type, int64_t size, const char* name) {
    return q.arena().make(Category::data, type, {size}, name);
  };
  ids_ = tensor(DType::i32, options.limits.tokens, "ids");
  labels_ = tensor(DType::i32, options.limits.tokens, "labels");
  positions_ = tensor(DType::i32, options.limits.tokens, "positions");
  starts_ = tensor(DType::i32, options.limits.documents + 1, "document starts");
  loss_ = tensor(DType::f64, 1, "loss");
  if (options.sample_positions > 0)
    decoder_ =
        std::make_unique<Decoder>(q, model_, options.sample_positions, options.sample_positions);
}

MemoryPlan Trainer::plan(const TrainOptions& options) {
  Arena arena;
  Queue q(Device::sim, arena);
  Trainer trainer(q, options);
  trainer.rehearse();
  return arena.plan();
}

void Trainer::rehearse() {
  const BatchLimits& l = options_.limits;
  const Batch largest = view(l.tokens, l.documents, l.longest);
  params_.zero_grads(q_);
  if (options_.single_micro_batch) {
    const auto phase = q_.arena().phase("step");
    model_.train(q_, largest, 1, loss_);
    update(0, 0, nullptr);
  } else {
    {
      const auto phase = q_.arena().phase("micro");
      model_.train(q_, largest, 1, loss_);
    }
    const auto phase = q_.arena().phase("update");
    update(0, 0, nullptr);
  }
  {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, largest, loss_);
  }
  if (decoder_) decoder_->rehearse(q_);
}

Batch Trainer::view(int64_t tokens, int64_t documents, int64_t longest) const {
  Batch b;
  b.ids_T = ids_->rows(0, tokens);
  b.labels_T = labels_->rows(0, tokens);
  b.positions_T = positions_->rows(0, tokens);
  b.mask = {starts_->rows(0, documents + 1), documents, longest, options_.model.sliding_window, 0};
  return b;
}

Batch Trainer::upload(const HostBatch& host) {
  Batch b = view(host.tokens(), host.documents(), host.longest);
  b.targets = host.targets;
  for (size_t d = 0; d + 1 < host.starts.size(); ++d)
    b.mask.pairs += attention_pairs(host.starts[d + 1] - host.starts[d], b.mask.window);
  q_.upload(b.ids_T, host.ids.data());
  q_.upload(b.labels_T, host.labels.data());
  q_.upload(b.positions_T, host.positions.data());
  q_.upload(b.mask.starts, host.starts.data());
  return b;
}

double Trainer::update(double lr, double loss_sum, const MicroBatches* data) {
  clip_.measure(q_, params_);
  const double norm = clip_.norm(q_);
  if (data != nullptr) {
    if (!std::isfinite(loss_sum))
      not_finite("loss", loss_sum, optimizer_.steps(), data->step_samples());
    if (!std::isfinite(norm))
      not_finite("gradient's norm", norm, optimizer_.steps(), data->step_samples());
  }
  optimizer_.update(q_, lr, clip_.scale());
  params_.drop_grads();
  return norm;
}

StepResult Trainer::step(MicroBatches& data) {
  StepResult result;
  result.lr = options_.schedule.at(optimizer_.steps());
  result.targets = data.targets();
  const float scale = 1.0f / static_cast<float>(std::max<int64_t>(1, data.targets()));
  const double zero = 0;
  q_.upload(loss_, &zero);
  params_.zero_grads(q_);

  if (options_.single_micro_batch) {
    require(data.count() == 1, Fault::bug, "a step of {} micro-batches was planned as one",
            data.count());
    const auto phase = q_.arena().phase("step");
    const Batch batch = upload(*data.next());
    result.tokens = batch.tokens();
    model_.train(q_, batch, scale, loss_);
    result.grad_norm = update(result.lr, q_.value<double>(loss_), &data);
  } else {
    while (const HostBatch* host = data.next()) {
      const auto phase = q_.arena().phase("micro");
      const Batch batch = upload(*host);
      result.tokens += batch.tokens();
      model_.train(q_, batch, scale, loss_);
    }
    const auto phase = q_.arena().phase("update");
    result.grad_norm = update(result.lr, q_.value<double>(loss_), &data);
  }
  result.loss = q_.value<double>(loss_) * scale;
  return result;
}

Trainer::Evaluation Trainer::evaluate(MicroBatches& data) {
  const double zero = 0;
  q_.upload(loss_, &zero);
  while (const HostBatch* host = data.next()) {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, upload(*host), loss_);
  }
  return {q_.value<double>(loss_), data.targets()};
}

}  // namespace capstan
