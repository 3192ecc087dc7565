#include "train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <vector>

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

// Recipes may ask for batches of any size: sums and products of them must not overflow.
int64_t at_most_all(int64_t batch, const Dataset& dataset) {
  return std::min(batch, std::max<int64_t>(1, dataset.size()));
}

bool fits(const TrainOptions& options, int64_t available) {
  return Trainer::plan(options).total_bytes <= available;
}

// With at most `micro_batch` documents at a time.
TrainOptions in_micro_batches(TrainOptions options, int64_t micro_batch) {
  BatchLimits& l = options.limits;
  l.documents = std::min(l.documents, micro_batch);
  l.tokens = std::min(l.tokens, l.documents * l.longest);
  options.single_micro_batch = false;
  return options;
}

// The largest smaller micro-batch that fits and divides `micro_batch`; 0 if none does.
int64_t fitting_micro_batch(const TrainOptions& options, int64_t micro_batch, int64_t available) {
  std::vector<int64_t> divisors;
  for (int64_t m = 1; m < options.limits.documents; ++m)
    if (micro_batch % m == 0) divisors.push_back(m);
  // More documents never need less, so those that fit come first.
  const auto end = std::partition_point(divisors.begin(), divisors.end(), [&](int64_t m) {
    return fits(in_micro_batches(options, m), available);
  });
  return end == divisors.begin() ? 0 : end[-1];
}

// Single changes that make the run fit, as "key: value".
std::vector<std::string> what_fits(const TrainOptions& options, int64_t micro_batch,
                                   const MemoryPlan& plan, int64_t available) {
  std::vector<std::string> changes;
  const int64_t kept = at(plan.highest, Category::weights) + at(plan.highest, Category::optimizer);
  if (kept <= available) {  // else no saving of activations is enough
    for (const auto policy : {Recompute::selective, Recompute::block}) {
      TrainOptions o = options;
      o.recompute = policy;
      if (policy > options.recompute && fits(o, available))
        changes.push_back(fmt::format("activations: {}", name_of(policy)));
    }
    if (const int64_t m = fitting_micro_batch(options, micro_batch, available); m > 0)
      changes.push_back(fmt::format("train.micro_batch_size: {}", m));
  }
  TrainOptions o = options;
  o.precision = Precision::bf16_true;
  if (options.precision != o.precision && fits(o, available))
    changes.emplace_back("precision: bf16-true");
  return changes;
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

void require_fit(const TrainOptions& options, int64_t micro_batch, const MemoryPlan& plan,
                 int64_t available) {
  if (plan.total_bytes <= available) return;
  const std::vector<std::string> changes = what_fits(options, micro_batch, plan, available);
  fail(Fault::does_not_fit, "does not fit: needs {}, {} free. {}{}",
       format_bytes(static_cast<double>(plan.total_bytes)),
       format_bytes(static_cast<double>(available)),
       changes.empty() ? "No single change of activations, precision or micro-batch is enough: use "
                         "a smaller model or a shorter max_seq_length"
                       : "Fits with: ",
       fmt::join(changes, " · "));
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
      trainer_(std::make_unique<Trainer>(queue_, options_)) {}

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
      recipe_.max_steps, format_duration(seconds_), count(tokens_), count(targets_),
      format_count(static_cast<double>(tokens_) / std::max(seconds_, 1e-9)), first_loss_,
      last_loss_, val_loss_ < 0 ? "" : fmt::format(", {:.4f} on held-out data", val_loss_));
  return s + memory_table(plan_, arena_) + "\n" + op_table(queue_, 8);
}

}  // namespace capstan
