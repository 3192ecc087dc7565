#include "train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer_json.h"
#include "report/progress.h"
#include "report/summary.h"
#include "train/fit.h"
#include "train/stop_signals.h"

namespace capstan {
namespace {

BatchOptions batch_options(const Recipe& recipe, const ModelConfig& model) {
  return {.max_seq_length = recipe.max_seq_length, .vocab = model.vocab, .packed = recipe.packed};
}

// Recipes may ask for batches of any size: sums and products of them must not overflow.
int64_t at_most_all(int64_t batch, const Dataset& dataset) {
  return std::min(batch, std::max<int64_t>(1, dataset.size()));
}

}  // namespace

TrainOptions train_options(const Recipe& r, const ModelConfig& model) {
  TrainOptions o;
  o.model = model;
  o.precision = parse_precision(r.precision);
  o.recompute = parse_recompute(r.activations);
  o.single_micro_batch = r.global_batch_size == r.micro_batch_size;
  o.optimizer = {.kind = parse_optimizer(r.optimizer),
                 .beta1 = r.beta1,
                 .beta2 = r.beta2,
                 .eps = r.eps,
                 .momentum = r.momentum,
                 .dampening = r.dampening,
                 .nesterov = r.nesterov,
                 .weight_decay = r.weight_decay};
  o.decay = r.decay == "matrices" ? Decay::matrices : Decay::all;
  o.schedule = {.lr = r.lr,
                .min_lr = r.min_lr,
                .warmup_steps = r.lr_warmup_steps,
                .total_steps = r.max_steps,
                .decay = parse_decay(r.schedule)};
  o.max_norm = r.max_norm;
  return o;
}

void check_recipe(const Recipe& r) {
  std::vector<std::string> errors;
  const int64_t global = r.global_batch_size, micro = r.micro_batch_size;
  if (global % micro != 0) {
    const int64_t lower = global / micro * micro, common = std::gcd(global, micro);
    const auto upper = static_cast<uint64_t>(lower) + static_cast<uint64_t>(micro);
    errors.push_back(fmt::format(
        "train.global_batch_size {} is not a whole number of micro-batches of {}; {}{} would be{}",
        global, micro, lower > 0 ? fmt::format("{} or ", lower) : "", upper,
        common > 1 ? fmt::format(", or train.micro_batch_size {}", common) : ""));
  }
  if (parse_decay(r.schedule) != Schedule::Decay::constant && r.min_lr > r.lr)
    errors.push_back(fmt::format(
        "train.min_lr {} is above optimizer.lr {}: the rate would rise; give a train.min_lr of at "
        "most {}, or train.schedule constant",
        r.min_lr, r.lr, r.lr));
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
}

TrainOptions TrainingRun::with_limits(const Recipe& recipe, const ModelConfig& model,
                                      const Dataset& train, const Dataset& validation,
                                      int64_t sample_positions) {
  check_recipe(recipe);
  TrainOptions o = train_options(recipe, model);
  o.sample_positions = sample_positions;
  const BatchOptions batches = batch_options(recipe, model);
  o.limits = limits_of(train, recipe.micro_batch_size, batches);
  if (validation.size() > 0)
    o.limits.include(limits_of(validation, recipe.micro_batch_size, batches));
  return o;
}

TrainingRun::TrainingRun(const Recipe& recipe, const ModelConfig& model, Dataset train,
                         Dataset validation, int64_t sample_positions)
    : recipe_(recipe),
      train_(std::move(train)),
      validation_(std::move(validation)),
      options_(with_limits(recipe, model, train_, validation_, sample_positions)),
      plan_([&] {
        MemoryPlan plan = Trainer::plan(options_);
        require_fit(options_, recipe.micro_batch_size, plan, available_memory());
        return plan;
      }()),
      arena_(plan_),
      queue_(Device::cpu, arena_),
      trainer_(std::make_unique<Trainer>(queue_, options_)) {
  const DatasetCounts c = count(train_, recipe.max_seq_length);
  if (c.truncated > 0)
    log::warn("{} of {} samples are longer than train.max_seq_length {} and lose their ends",
              c.truncated, train_.size(), recipe.max_seq_length);
  if (c.all_masked > 0)
    log::warn("{} of {} samples have nothing to learn: all of their targets are masked",
              c.all_masked, train_.size());
}

MicroBatches TrainingRun::micro_batches(const Dataset& dataset) const {
  return {dataset, at_most_all(recipe_.micro_batch_size, dataset),
          batch_options(recipe_, options_.model)};
}

void TrainingRun::initialize() {
  if (recipe_.initial_checkpoint_dir.empty())
    trainer_->params().initialize(queue_, static_cast<uint64_t>(recipe_.seed));
  else
    load_parameters(queue_, trainer_->params(), recipe_.initial_checkpoint_dir);
}

double TrainingRun::validate() {
  if (validation_.size() == 0) return -1;
  const int64_t all = validation_.size();
  const int64_t micro = at_most_all(recipe_.micro_batch_size, validation_);
  const int64_t samples =
      recipe_.eval_max_iters <= all / micro ? recipe_.eval_max_iters * micro : all;
  Sampler in_order(validation_.size(), samples, 0, false);
  MicroBatches data = micro_batches(validation_);
  data.start(in_order.ids(0));
  val_loss_ = trainer_->evaluate(data).mean();
  return val_loss_;
}

void TrainingRun::train() {
  Sampler sampler(train_.size(), at_most_all(recipe_.global_batch_size, train_),
                  static_cast<uint64_t>(recipe_.seed));
  MicroBatches data = micro_batches(train_);
  queue_.reset_totals();
  Progress progress(recipe_.max_steps, recipe_.log_interval);
  const StopSignals stop;
  for (; steps_ < recipe_.max_steps && stop.caught() == 0; ++steps_) {
    data.start(sampler.ids(steps_));
    const StepResult r = trainer_->step(data);
    tokens_ += r.tokens;
    targets_ += r.targets;
    if (steps_ == 0) first_loss_ = r.loss;
    last_loss_ = r.loss;
    const bool last = steps_ + 1 == recipe_.max_steps;
    Progress::Line line{.loss = r.loss, .lr = r.lr, .tokens = r.tokens};
    if ((steps_ + 1) % recipe_.eval_interval == 0 || last) {
      const auto start = std::chrono::steady_clock::now();
      line.val_loss = validate();
      progress.exclude(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    progress.step(line);
  }
  signal_ = stop.caught();
  ops_ = op_table(queue_, 8);
  require(std::isfinite(val_loss_), Fault::usage,
          "the loss on held-out data is {}: the training diverged, and nothing is saved. Lower the "
          "learning rate or set train.max_norm",
          val_loss_);
  seconds_ = progress.seconds();
}

void TrainingRun::check_save(const std::filesystem::path& dir) {
  const NewFolder probe(dir);
  int64_t bytes = 0;
  for (int i = 0; i < trainer_->params().count(); ++i)
    bytes += trainer_->params().stored(i).nbytes();
  require_space(probe.path(), bytes);
}

void TrainingRun::save(const std::filesystem::path& dir) {
  NewFolder folder(dir);
  write_model(queue_, trainer_->params(), folder.path());
  write_text(folder.path() / "tokenizer.json", byte_tokenizer_json());
  write_text(folder.path() / "tokenizer_config.json", byte_tokenizer_config_json());
  write_text(folder.path() / "hyperparameters.yaml", recipe_yaml(recipe_));
  folder.commit();
}

std::string TrainingRun::report() const {
  const auto count = [](int64_t n) { return format_count(static_cast<double>(n)); };
  std::string s = fmt::format(
      "  {} steps in {}: {} tokens, {} of them targets, {} tok/s\n"
      "  loss {:.4f} at the first step, {:.4f} at the last{}\n\n",
      steps_, format_duration(seconds_), count(tokens_), count(targets_),
      format_count(static_cast<double>(tokens_) / std::max(seconds_, 1e-9)), first_loss_,
      last_loss_, val_loss_ < 0 ? "" : fmt::format(", {:.4f} on held-out data", val_loss_));
  return s + memory_table(plan_, arena_) + "\n" + ops_;
}

}  // namespace capstan
