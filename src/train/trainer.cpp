#include "train/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/plain_nan.h"
#include "base/units.h"
#include "train/balance.h"

namespace capstan {
namespace {

double clip_limit(const TrainOptions& o) {
  return o.max_norm > 0 ? o.max_norm : std::numeric_limits<double>::infinity();
}

// Factor for the mean over all targets of a step.
float scale_of(int64_t targets) {
  return 1.0f / static_cast<float>(std::max<int64_t>(1, targets));
}

LossScale loss_scale_of(const TrainOptions& o) {
  return types_of(o.precision).compute == DType::f16 ? LossScale(o.loss_scale) : LossScale();
}

Gradients gradient_life(const TrainOptions& o) {
  return o.single_micro_batch && o.mesh.pipeline == 1 ? Gradients::in_step : Gradients::kept;
}

bool drops(const TrainOptions& o) {
  return o.lora && o.lora->dropout > 0;
}

// The state that is offloaded has the moments in it, too.
OptimizerOptions optimizer_of(const TrainOptions& o) {
  OptimizerOptions optimizer = o.optimizer;
  optimizer.paged = optimizer.paged || o.sharding.offload;
  return optimizer;
}

DeviceBatch::Arrays arrays_of(const TrainOptions& o) {
  return drops(o) ? DeviceBatch::Arrays::with_ordinals : DeviceBatch::Arrays::without_ordinals;
}

void say_where_the_state_is(const Queue& q) {
  if (q.device() == Device::cpu)
    log::info(
        "optimizer: paged and offload have no effect on the CPU, where all state is in host "
        "memory");
  if (q.device() != Device::cuda || !q.host().pinned()) return;
  const ByCategory& host = q.host().highest();
  const int64_t masters = at(host, Category::weights);
  log::info("optimizer: its state ({}{}) is in host memory; the GPU updates it over the bus",
            format_bytes(static_cast<double>(masters + at(host, Category::optimizer))),
            masters > 0 ? ", with the masters" : "");
}

// What follows from the mesh.
TrainOptions with_mesh(const TrainOptions& options) {
  TrainOptions o = options;
  const int stages = o.mesh.pipeline;
  o.limits = o.limits.for_shares(o.mesh.token_multiple());
  require_shares(o.model, o.mesh.tensor, o.mesh.context);
  require(stages == 1 || o.pipeline.kind != PipelineKind::zero_bubble ||
              o.sharding.gradients == Hold::whole || o.ranks.size == stages * o.mesh.tensor,
          Fault::usage,
          "pipeline_schedule: zero_bubble keeps the gradients of a stage whole, but strategy {} "
          "shards them; use ddp or zero1, or another schedule",
          strategy_name(o.sharding));
  o.mesh.ring = o.pipeline.chunks > 1;
  o.pipeline.cuts = cuts_of(options);
  return o;
}

// The micro-batches of a step; counts their tokens, if asked to.
struct FromData {
  Queue& q;
  MicroBatches& data;
  int sharing = 1;  // ranks that share each sequence
  StepResult* counts = nullptr;

  int64_t next_tokens() const {
    const HostBatch* host = data.peek();
    return host == nullptr ? 0 : host->tokens() / sharing;
  }
  Batch next(DeviceBatch& room) const {
    const HostBatch& host = *data.next();
    if (host.tokens() == 0) return {};
    const Batch batch = room.upload(q, host);
    if (counts != nullptr) {
      counts->tokens += host.tokens();
      counts->padding += host.padding;
    }
    return batch;
  }
};

// The same batch each time.
struct Always {
  Batch batch;
  Batch next(DeviceBatch&) const { return batch; }
  int64_t next_tokens() const { return batch.ids_T ? batch.tokens() : 0; }
};

std::string not_finite(const char* what, double value, int64_t step, const MicroBatches& data) {
  constexpr size_t kNamed = 32;
  const auto samples = data.step_samples();
  std::vector<std::string> places;
  for (const int64_t sample : samples.first(std::min(samples.size(), kNamed)))
    places.push_back(data.dataset().where_of(sample));
  return fmt::format(
      "step {}: the {} is {}; the weights are unchanged by this step. Its samples: {}{}", step + 1,
      what, value, fmt::join(places, ", "),
      samples.size() > kNamed ? fmt::format(" and {} more", samples.size() - kNamed) : "");
}

std::string update_not_finite(int64_t step, double lr) {
  return fmt::format(
      "step {}: the update with learning rate {:.3g} made weights or moments that are not finite",
      step + 1, lr);
}

std::vector<Transformer*> pointers(const std::vector<std::unique_ptr<Transformer>>& all) {
  std::vector<Transformer*> result;
  for (const auto& one : all) result.push_back(one.get());
  return result;
}

}  // namespace

std::vector<std::unique_ptr<Transformer>> Trainer::make_pieces() {
  std::vector<std::unique_ptr<Transformer>> pieces;
  const std::vector<int>& cuts = options_.pipeline.cuts;
  const int64_t positions = std::max(options_.limits.longest, options_.sample_positions);
  const auto stages = static_cast<size_t>(options_.mesh.pipeline);
  for (auto i = static_cast<size_t>(params_.mesh().pipe().stage()); i + 1 < cuts.size();
       i += stages)
    pieces.push_back(std::make_unique<Transformer>(q_, params_, options_.recompute, positions,
                                                   Stage{cuts[i], cuts[i + 1]}));
  return pieces;
}

Trainer::Trainer(Queue& q, const TrainOptions& options, const Communicator& group)
    : q_(q),
      options_(with_mesh(options)),
      spec_(spec_of(options, group.ranks())),
      params_(q.arena(), spec_, options.precision, gradient_life(options),
              Mesh(group, options_.mesh), options.sharding, &q.host(),
              units_of_stages(spec_, options_.pipeline.cuts, options_.mesh.pipeline)),
      pieces_(make_pieces()),
      parts_(pointers(pieces_), params_.mesh().pipe()),
      kept_(parts_[0].make_kept()),
      optimizer_(q, params_, optimizer_of(options)),
      clip_(q, clip_limit(options), params_),
      loss_scale_(loss_scale_of(options)),
      batch_(q, options_.limits, options.model, arrays_of(options),
             params_.mesh().context().ranks()),
      results_(q.arena().make(Category::data, DType::f64, {2}, "results")),
      scale_(q.arena().make(Category::data, DType::f32, {1}, "loss scale")),
      all_flags_(group.make_scalars(q.arena())) {
  q.allow_tf32(uses_tf32(options));
  tensor_room_ = params_.mesh().tensor().make_room(q.arena(), tensor_bytes());
  if (options_.mesh.pipeline > 1)
    pipeline_.emplace(q, parts_, options_.pipeline, options_.limits, arrays_of(options));
  if (drops(options))
    key_ = q.arena().make(Category::data, DType::i32, {RandomKey::kWords}, "dropout key");
  if (options.sample_positions > 0)
    decoder_ =
        std::make_unique<Decoder>(q, parts_, options.sample_positions, options.sample_positions);
  if (options.staging) snapshot_ = std::make_unique<Snapshot>(q, params_, optimizer_);
  if (optimizer_.options().paged) say_where_the_state_is(q);
}

// Of the largest tensor that ranks that share each layer add.
int64_t Trainer::tensor_bytes() const {
  const int64_t tokens =
      std::max(options_.limits.tokens / options_.mesh.context, options_.sample_positions);
  const int64_t ranks = options_.mesh.tensor, values = tokens * options_.model.hidden;
  return std::max((values + ranks - 1) / ranks * ranks * size_of(params_.types().compute),
                  params_.copied_bytes());
}

RunPlan Trainer::plan(const TrainOptions& options) {
  Arena device, host;
  Queue q(Device::sim, device, host, {.device = options.device});
  Trainer trainer(q, options, simulated(options.ranks, "dp", options.network));
  trainer.rehearse();
  return {device.plan(), host.plan(), trainer.params().digests()};
}

void Trainer::rehearse() {
  const Batch largest = batch_.largest();
  const bool may_idle = params_.mesh().batches().size > 1;
  if (pipeline_) {
    begin(0, 1, 1);
    for (const bool idle : {false, true})
      if (!idle || may_idle) pipeline_->rehearse(q_, pipeline_step(1), idle);
    pipeline_->rehearse_step(q_, pipeline_step(1));
    const auto phase = q_.arena().phase("update");
    params_.end_gradients(q_);
    update(0);
  } else {
    run_step(0, 1, largest.targets, 1, Always{largest}, [&] { update(0); });
    if (may_idle) run_step(0, 1, 1, 1, Always{}, [&] { update(0); });
  }
  rehearse_evaluation(q_, parts_, batch_, loss());
  if (decoder_) decoder_->rehearse(q_);
}

std::optional<StepKey> Trainer::key() const {
  if (!key_) return {};
  return StepKey{.at = *key_};
}

void Trainer::learn_result(StepResult& result, const MicroBatches& data, int64_t step) {
  double results[2];
  q_.download(results, *results_);
  params_.group().check();
  const double loss_sum = plain_nan(results[0]);
  result.loss = loss_sum * double{scale_of(result.targets)};
  result.grad_norm = plain_nan(clip_.norm(q_));
  result.loss_scale = loss_scale_.value();
  const bool finite = std::isfinite(loss_sum) && std::isfinite(result.grad_norm);
  if (finite && results[1] == 0) return loss_scale_.count_good_step();
  params_.settle(q_);  // the step may end here with an error, on every rank
  if (results[1] != 0) throw NotFiniteUpdate(Fault::usage, update_not_finite(step, result.lr));
  optimizer_.restore(optimizer_.steps() - 1);
  const bool in_loss = !std::isfinite(loss_sum);
  if (!in_loss && loss_scale_.lower()) {
    log::info("step {}: gradients exceeded f16: left this step out, and the loss scale is now {}",
              step + 1, loss_scale_.value());
    result.overflowed = true;
    return;
  }
  const std::string what = not_finite(in_loss ? "loss" : "gradient norm",
                                      in_loss ? loss_sum : result.grad_norm, step, data);
  require(options_.skip_not_finite, Fault::usage, "{}", what);
  log::warn("{}: skipped this step", what);
  result.skipped = true;
}

void Trainer::copy_ahead(MicroBatches& data) {
  const HostBatch* host = data.peek();
  if (host != nullptr && host->tokens() > 0) batch_.send(*host);
}

void Trainer::begin(int64_t step, int64_t targets, double loss_scale) {
  const double zero = 0;
  const float scale = static_cast<float>(loss_scale) * scale_of(targets);
  q_.upload(loss(), &zero);
  q_.upload(scale_, &scale);
  const uint64_t key_words[] = {options_.seed, static_cast<uint64_t>(step)};
  if (key_) q_.upload(key_, key_words);
  params_.begin_step(q_);
}

Pipeline::Step Trainer::pipeline_step(int64_t micro_batches) const {
  return {micro_batches, key(), Scalar(*scale_), loss()};
}

void Trainer::train_micro_batch(const Batch& batch) {
  // The loss's address identifies this trainer's memory.
  q_.graph({batch.tokens(), batch.mask.documents, batch.mask.longest, batch.targets,
            params_.schedule_key(), std::bit_cast<intptr_t>(loss().raw())},
           [&] {
             parts_[0].forward(q_, batch, kept_, {}, key());
             parts_[0].backward(q_, batch, kept_, Scalar(*scale_), loss());
           });
}

// The update scales the gradients by a factor that is NaN if loss or gradients are not finite; it
// then leaves the weights unchanged. The host checks afterwards, so the device does not wait.
void Trainer::update(double lr) {
  clip_.measure(q_, params_, loss(), loss_scale_.value());
  optimizer_.update(q_, lr, clip_.scale(), update_flag());
  params_.group().sum_scalars(q_, update_flag(), *all_flags_);
  params_.end_update(q_);
  params_.end_step();
}

template <class Source, class Finish>
void Trainer::run_step(int64_t step, int64_t micro_batches, int64_t targets, double loss_scale,
                       const Source& source, const Finish& finish) {
  begin(step, targets, loss_scale);
  if (pipeline_) {
    pipeline_->run(q_, pipeline_step(micro_batches),
                   {[&] { return source.next_tokens(); },
                    [&](DeviceBatch& room) { return source.next(room); }});
    const auto phase = q_.arena().phase("update");
    params_.end_gradients(q_);
    return finish();
  }
  if (options_.single_micro_batch) {
    require(micro_batches == 1, Fault::bug,
            "a step of {} micro-batches was planned as a single micro-batch", micro_batches);
    const Batch batch = source.next(batch_);
    const auto phase = q_.arena().phase(batch.ids_T ? "step" : "idle step");
    run_micro_batch(batch, 0, 1);
    return finish();
  }
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const Batch batch = source.next(batch_);
    const auto phase = q_.arena().phase(batch.ids_T ? "micro" : "idle micro");
    run_micro_batch(batch, micro, micro_batches);
  }
  const auto phase = q_.arena().phase("update");
  finish();
}

void Trainer::run_micro_batch(const Batch& batch, int64_t micro, int64_t count) {
  params_.begin_micro_batch(micro == 0, micro + 1 == count);
  if (batch.ids_T) {
    train_micro_batch(batch);
  } else {
    parts_[0].idle_forward(q_);
    parts_[0].idle_backward(q_);
  }
  params_.end_micro_batch(q_);
}

void Trainer::pass_over(StepResult& result, MicroBatches& data, int64_t step) {
  while (const HostBatch* host = data.next()) {
    result.tokens += host->tokens();
    result.padding += host->padding;
  }
  result.masked = true;
  log::warn("step {}: all labels are masked, so the step changes nothing", step + 1);
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
  const auto finish = [&] {
    update(result.lr);
    if (following != nullptr && batch_.copies_ahead() && !pipeline_)
      copy_ahead(following->of(step + 1));
    if (meanwhile) meanwhile();
    learn_result(result, data, step);
  };
  run_step(step, data.count(), data.targets(), loss_scale_.value(),
           FromData{q_, data, options_.mesh.context, &result}, finish);
  return result;
}

Trainer::Probe Trainer::probe(MicroBatches& data) {
  const bool alone = params_.mesh().batches().size == 1;
  require(data.count() == 1 || alone, Fault::bug,
          "a probe among ranks takes one micro-batch of each");
  const int64_t targets = alone ? data.peek()->targets : data.targets();
  run_step(0, 1, targets, 1, FromData{q_, data, options_.mesh.context}, [&] {
    clip_.measure(q_, params_, loss());
    params_.end_step();
  });
  return {q_.value<double>(loss()) * double{scale_of(targets)}, clip_.norm(q_)};
}

Trainer::Probe Trainer::try_step(MicroBatches& data, int64_t step,
                                 const std::function<void()>& look) {
  run_step(step, data.count(), data.targets(), 1, FromData{q_, data, options_.mesh.context}, [&] {
    clip_.measure(q_, params_, loss());
    look();
    params_.end_step();
  });
  return {q_.value<double>(loss()) * double{scale_of(data.targets())}, clip_.norm(q_)};
}

Evaluation Trainer::evaluate(MicroBatches& data) {
  return capstan::evaluate(q_, parts_, batch_, loss(), data, *all_flags_);
}

}  // namespace capstan
