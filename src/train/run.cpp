#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "data/tokenizer_json.h"
#include "report/progress.h"
#include "report/summary.h"

namespace capstan {
namespace {

BatchOptions batch_options(const Recipe& recipe, const ModelConfig& model) {
  return {.max_seq_length = recipe.max_seq_length, .vocab = model.vocab, .packed = recipe.packed};
}

// The plan's total under a change of options, for the list of what would fit.
std::string try_change(TrainOptions options, int64_t available, const char* words) {
  return Trainer::plan(options).total_bytes <= available ? words : "";
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
                 .weight_decay = r.weight_decay};
  o.schedule = {.lr = r.lr,
                .min_lr = r.min_lr,
                .warmup_steps = r.lr_warmup_steps,
                .total_steps = r.max_steps,
                .decay = parse_decay(r.schedule)};
  o.max_norm = r.max_norm;
  return o;
}

void check_batch_sizes(const Recipe& r) {
  const int64_t global = r.global_batch_size, micro = r.micro_batch_size;
  if (global % micro == 0) return;
  const int64_t lower = global / micro * micro, upper = lower + micro;
  fail(Fault::usage,
       "train.global_batch_size {} is not a whole number of micro-batches of {}; {}{} would be",
       global, micro, lower > 0 ? fmt::format("{} or ", lower) : "", upper);
}

int64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    meminfo.ignore(256, '\n');
  }
  return INT64_MAX;  // a system that does not say: let the allocation decide
}

void require_fit(const TrainOptions& options, const MemoryPlan& plan, int64_t available) {
  if (plan.total_bytes <= available) return;
  std::string fits;
  const auto add = [&](std::string words) {
    if (!words.empty()) fits += (fits.empty() ? "" : " · ") + words;
  };
  for (const auto policy : {Recompute::selective, Recompute::block}) {
    TrainOptions o = options;
    o.recompute = policy;
    if (policy > options.recompute)
      add(try_change(o, available, fmt::format("activations: {}", name_of(policy)).c_str()));
  }
  if (options.precision != Precision::bf16_true) {
    TrainOptions o = options;
    o.precision = Precision::bf16_true;
    add(try_change(o, available, "precision: bf16-true"));
  }
  for (int64_t divisor = 2; divisor <= options.limits.documents; divisor *= 2) {
    TrainOptions o = options;
    o.limits.documents = options.limits.documents / divisor;
    o.limits.tokens = std::max(options.limits.longest, options.limits.tokens / divisor);
    o.single_micro_batch = false;
    const std::string words =
        try_change(o, available, fmt::format("micro_batch_size {}", o.limits.documents).c_str());
    add(words);
    if (!words.empty()) break;
  }
  fail(Fault::does_not_fit, "does not fit: needs {}, {} free. {}{}",
       format_bytes(static_cast<double>(plan.total_bytes)),
       format_bytes(static_cast<double>(available)),
       fits.empty() ? "No single change of activations, precision or micro-batch is enough: use a "
                      "smaller model or a shorter max_seq_length"
                    : "Fits with: ",
       fits);
}

TrainOptions TrainingRun::with_limits(const Recipe& recipe, const ModelConfig& model,
                                      const Dataset& train, const Dataset& validation,
                                      int64_t sample_positions) {
  check_batch_sizes(recipe);
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
        require_fit(options_, plan, available_memory());
        return plan;
      }()),
      arena_(plan_),
      queue_(Device::cpu, arena_),
      trainer_(std::make_unique<Trainer>(queue_, options_)) {}

MicroBatches TrainingRun::micro_batches(const Dataset& dataset) const {
  return {dataset, recipe_.micro_batch_size, batch_options(recipe_, options_.model)};
}

void TrainingRun::initialize() {
  if (recipe_.initial_checkpoint_dir.empty())
    trainer_->params().initialize(queue_, static_cast<uint64_t>(recipe_.seed));
  else
    load_parameters(queue_, trainer_->params(), recipe_.initial_checkpoint_dir);
}

double TrainingRun::validate() {
  if (validation_.size() == 0) return -1;
  const int64_t samples =
      std::min(validation_.size(), recipe_.eval_max_iters * recipe_.micro_batch_size);
  Sampler in_order(validation_.size(), samples, 0, false);
  MicroBatches data = micro_batches(validation_);
  data.start(in_order.ids(0));
  val_loss_ = trainer_->evaluate(data).mean();
  return val_loss_;
}

void TrainingRun::train() {
  Sampler sampler(train_.size(), recipe_.global_batch_size, static_cast<uint64_t>(recipe_.seed));
  MicroBatches data = micro_batches(train_);
  queue_.reset_totals();
  Progress progress(recipe_.max_steps, recipe_.log_interval);
  for (int64_t step = 0; step < recipe_.max_steps; ++step) {
    data.start(sampler.ids(step));
    const StepResult r = trainer_->step(data);
    tokens_ += r.tokens;
    targets_ += r.targets;
    if (step == 0) first_loss_ = r.loss;
    last_loss_ = r.loss;
    const bool last = step + 1 == recipe_.max_steps;
    if ((step + 1) % recipe_.eval_interval == 0 || last) validate();
    progress.step({.loss = r.loss, .lr = r.lr, .val_loss = val_loss_, .tokens = r.tokens});
  }
  seconds_ = progress.seconds();
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
      recipe_.max_steps, format_duration(seconds_), count(tokens_), count(targets_),
      format_count(static_cast<double>(tokens_) / std::max(seconds_, 1e-9)), first_loss_,
      last_loss_, val_loss_ < 0 ? "" : fmt::format(", {:.4f} on held-out data", val_loss_));
  return s + memory_table(plan_, arena_) + "\n" + op_table(queue_, 8);
}

}  // namespace capstan
