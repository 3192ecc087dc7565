#include "train/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/units.h"

namespace capstan {
namespace {

double clip_limit(const TrainOptions& o) {
  return o.max_norm > 0 ? o.max_norm : std::numeric_limits<double>::infinity();
}

// Of the mean over all labels of a step that count.
float scale_of(int64_t targets) {
  return 1.0f / static_cast<float>(std::max<int64_t>(1, targets));
}

Gradients gradient_life(const TrainOptions& o) {
  return o.single_micro_batch ? Gradients::in_step : Gradients::kept;
}

void say_where_the_state_is(const Queue& q) {
  if (q.device() == Device::cpu)
    log::info("optimizer: paged changes nothing here: on the CPU all state is in host memory");
  if (q.device() == Device::cuda && q.host().pinned())
    log::info("optimizer: its state ({}) is in host memory, where the GPU updates it over the bus",
              format_bytes(static_cast<double>(at(q.host().highest(), Category::optimizer))));
}

std::string not_finite(const char* what, double value, int64_t step, const MicroBatches& data) {
  constexpr size_t kNamed = 32;
  const auto samples = data.step_samples();
  std::vector<std::string> places;
  for (const int64_t sample : samples.first(std::min(samples.size(), kNamed)))
    places.push_back(data.dataset().where_of(sample));
  return fmt::format(
      "step {}: the {} is {}; the weights are as they were before this step. It had {}{}", step + 1,
      what, value, fmt::join(places, ", "),
      samples.size() > kNamed ? fmt::format(" and {} more", samples.size() - kNamed) : "");
}

std::string update_not_finite(int64_t step, double lr) {
  return fmt::format(
      "step {}: the update with a learning rate of {:.3g} made weights or moments that are not "
      "finite",
      step + 1, lr);
}

}  // namespace

Trainer::Trainer(Queue& q, const TrainOptions& options)
    : q_(q),
      options_(options),
      params_(q.arena(), make_spec(options.model, options.decay, options.lora, options.quantize),
              options.precision, gradient_life(options)),
      model_(q, params_, options.recompute,
             std::max(options.limits.longest, options.sample_positions)),
      optimizer_(q, params_, options.optimizer),
      clip_(q, clip_limit(options)),
      batch_(q, options.limits, options.model),
      results_(q.arena().make(Category::data, DType::f64, {2}, "results")),
      scale_(q.arena().make(Category::data, DType::f32, {1}, "loss scale")) {
  q.allow_tf32(options.tf32);
  if (options.lora && options.lora->dropout > 0)
    key_ = q.arena().make(Category::data, DType::i32, {RandomKey::kWords}, "dropout key");
  if (options.sample_positions > 0)
    decoder_ =
        std::make_unique<Decoder>(q, model_, options.sample_positions, options.sample_positions);
  if (options.staging) snapshot_ = std::make_unique<Snapshot>(q, params_, optimizer_);
  if (options.optimizer.paged) say_where_the_state_is(q);
}

RunPlan Trainer::plan(const TrainOptions& options) {
  Arena device, host;
  Queue q(Device::sim, device, host, {.device = options.device});
  Trainer trainer(q, options);
  trainer.rehearse();
  return {device.plan(), host.plan()};
}

void Trainer::rehearse() {
  const Batch largest = batch_.largest();
  params_.zero_grads(q_);
  if (options_.single_micro_batch) {
    const auto phase = q_.arena().phase("step");
    model_.train(q_, largest, 1, loss(), key());
    clip_.measure(q_, params_);
    move_weights(0);
  } else {
    {
      const auto phase = q_.arena().phase("micro");
      model_.train(q_, largest, 1, loss(), key());
    }
    const auto phase = q_.arena().phase("update");
    clip_.measure(q_, params_);
    move_weights(0);
  }
  {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, largest, loss());
  }
  if (decoder_) decoder_->rehearse(q_);
}

std::optional<StepKey> Trainer::key() const {
  if (!key_) return {};
  return StepKey{.at = *key_};
}

void Trainer::move_weights(double lr) {
  optimizer_.update(q_, lr, clip_.scale(), update_flag());
  params_.drop_grads();
}

void Trainer::learn_result(StepResult& result, const MicroBatches& data, int64_t step) {
  double results[2];
  q_.download(results, *results_);
  const double loss_sum = results[0];
  if (results[1] != 0) throw NotFiniteUpdate(Fault::usage, update_not_finite(step, result.lr));
  result.loss = loss_sum * double{scale_of(result.targets)};
  result.grad_norm = clip_.norm(q_);
  if (std::isfinite(loss_sum) && std::isfinite(result.grad_norm)) return;
  optimizer_.restore(optimizer_.steps() - 1);
  const bool in_loss = !std::isfinite(loss_sum);
  const std::string what = not_finite(in_loss ? "loss" : "gradient's norm",
                                      in_loss ? loss_sum : result.grad_norm, step, data);
  require(options_.skip_not_finite, Fault::usage, "{}", what);
  log::warn("{}: left out", what);
  result.skipped = true;
}

void Trainer::copy_ahead(MicroBatches& data) {
  if (const HostBatch* host = data.peek()) batch_.send(*host);
}

void Trainer::begin(int64_t targets) {
  const double zero = 0;
  const float scale = scale_of(targets);
  q_.upload(loss(), &zero);
  q_.upload(scale_, &scale);
  params_.zero_grads(q_);
}

void Trainer::train_micro_batch(const Batch& batch, int64_t step, int64_t micro) {
  const uint64_t key_words[] = {options_.seed, static_cast<uint64_t>(step),
                                static_cast<uint64_t>(micro)};
  if (key_) q_.upload(key_, key_words);
  // Of the micro-batches of a step the first begins the gradients, and the others add to them.
  // The place of the loss stands for this trainer's memory.
  q_.graph({batch.tokens(), batch.mask.documents, batch.mask.longest, batch.targets, micro == 0,
            std::bit_cast<intptr_t>(loss().raw())},
           [&] { model_.train(q_, batch, Scalar(*scale_), loss(), key()); });
}

void Trainer::pass_over(StepResult& result, MicroBatches& data, int64_t step) {
  while (const HostBatch* host = data.next()) {
    result.tokens += host->tokens();
    result.padding += host->padding;
  }
  result.masked = true;
  log::warn("step {}: none of its labels counts, all are masked: nothing is learned from it",
            step + 1);
}

StepResult Trainer::step(MicroBatches& data, int64_t step, StepBatches* following,
                         const std::function<void()>& meanwhile) {
  StepResult result;
  result.lr = options_.schedule.at(step);
  result.targets = data.targets();
  result.micro_batches = data.count();
  if (data.targets() == 0) {
    pass_over(result, data, step);
    return result;
  }
  begin(data.targets());
  int64_t micro = 0;
  const auto train_on = [&](const HostBatch& host) {
    const Batch batch = batch_.upload(q_, host);
    result.tokens += batch.tokens();
    result.padding += host.padding;
    train_micro_batch(batch, step, micro++);
  };
  // The weights are moved by a factor that is NaN if loss or gradients are not finite, which leaves
  // them alone: so the host learns of it afterwards, and the device does not wait.
  const auto update = [&] {
    clip_.measure(q_, params_, loss());
    move_weights(result.lr);
    if (following != nullptr && batch_.copies_ahead()) copy_ahead(following->of(step + 1));
    if (meanwhile) meanwhile();
    learn_result(result, data, step);
  };
  if (options_.single_micro_batch) {
    require(data.count() == 1, Fault::bug, "a step of {} micro-batches was planned as one",
            data.count());
    const auto phase = q_.arena().phase("step");
    train_on(*data.next());
    update();
  } else {
    while (const HostBatch* host = data.next()) {
      const auto phase = q_.arena().phase("micro");
      train_on(*host);
    }
    const auto phase = q_.arena().phase("update");
    update();
  }
  return result;
}

double Trainer::rehearse_step(MicroBatches& data) {
  const HostBatch* host = data.next();
  begin(host->targets);
  const auto phase = q_.arena().phase(options_.single_micro_batch ? "step" : "micro");
  train_micro_batch(batch_.upload(q_, *host), 0, 0);
  params_.drop_grads();
  return q_.value<double>(loss()) * double{scale_of(host->targets)};
}

bool Trainer::is_finite_on(MicroBatches& data) {
  const HostBatch* host = data.next();
  begin(host->targets);
  const auto train = [&] { train_micro_batch(batch_.upload(q_, *host), 0, 0); };
  const auto measure = [&] {
    clip_.measure(q_, params_, loss());
    params_.drop_grads();
  };
  if (options_.single_micro_batch) {
    const auto phase = q_.arena().phase("step");
    train();
    measure();
  } else {
    {
      const auto phase = q_.arena().phase("micro");
      train();
    }
    const auto phase = q_.arena().phase("update");
    measure();
  }
  return std::isfinite(q_.value<double>(loss())) && std::isfinite(clip_.norm(q_));
}

Evaluation Trainer::evaluate(MicroBatches& data) {
  const double zero = 0;
  q_.upload(loss(), &zero);
  while (const HostBatch* host = data.next()) {
    const auto phase = q_.arena().phase("evaluate");
    model_.evaluate(q_, batch_.upload(q_, *host), loss());
  }
  return {q_.value<double>(loss()), data.targets()};
}

}  // namespace capstan
