#include "run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <numeric>

#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "infer/inference.h"
#include "machine/name.h"
#include "machine/peak.h"
#include "plan/fit.h"
#include "plan/predict.h"
#include "recipe/check.h"
#include "report/curve.h"
#include "report/page.h"
#include "run/fingerprint.h"
#include "run/stop_signals.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Recipes may ask for batches of any size: sums and products of them must not overflow.
int64_t at_most_all(int64_t batch, const Dataset& dataset) {
  return std::min(batch, std::max<int64_t>(1, dataset.size()));
}

// The record that eval.evaluate_example names, of the validation set where there is one.
std::optional<ExamplePrompt> asked_example(const Recipe& r, const RunInputs& in) {
  if (in.is_text || !r.eval_max_new_tokens) return std::nullopt;
  const Dataset& part = in.data.validation.size() > 0 ? in.data.validation : in.data.train;
  int64_t index = 0;
  if (r.evaluate_example.kind == ExampleChoice::Kind::random) {
    const Rng rng({.seed = static_cast<uint64_t>(r.seed), .site = site::sampling});
    index = static_cast<int64_t>(rng.below(0, static_cast<uint64_t>(part.size())));
  } else if (r.evaluate_example.kind == ExampleChoice::Kind::at_index) {
    index = r.evaluate_example.index;
    require(index < part.size(), Fault::usage,
            "eval.evaluate_example: {} was asked for, and there {} {} to show", index,
            part.size() == 1 ? "is" : "are", count(part.size(), "sample"));
  }
  return in.data.example(part, index, *in.tokenizer);
}

// Nothing where the model has no positions for it.
std::optional<ExamplePrompt> example_of(const Recipe& r, const RunInputs& in) {
  auto example = asked_example(r, in);
  if (example && std::ssize(example->tokens) > in.model.config.max_positions) example.reset();
  return example;
}

TrainOptions options_of(const Recipe& r, Task task, const RunInputs& in,
                        const std::optional<ExamplePrompt>& example) {
  check_recipe(r, task);
  TrainOptions o = train_options(r, task, in);
  o.sample_positions = in.sample_positions;
  if (example)
    o.sample_positions = std::min(in.model.config.max_positions,
                                  std::ssize(example->tokens) + *r.eval_max_new_tokens);
  return o;
}

RunPlan plan_of(TrainOptions& options, int64_t micro_batch) {
  std::string_view why;
  require(options.device != Device::cuda || cuda_present(&why), Fault::device,
          "accelerator: cuda was asked for, and cannot be used: {}; use --accelerator cpu", why);
  Fit fit = fit_of(options, micro_batch, room_for(options.device));
  require_fit(fit);
  if (fit.dropped_staging > 0)
    log::warn(
        "no room in host memory for a copy of the state ({}): the training waits while it is "
        "saved",
        format_bytes(static_cast<double>(fit.dropped_staging)));
  if (options.recompute_to_fit)
    log::say("activations: {}, the least that fits into {}", name_of(fit.options.recompute),
             format_bytes(static_cast<double>(fit.available.device)));
  options = fit.options;
  return std::move(fit.plan);
}

}  // namespace

TrainOptions run_options(const Recipe& recipe, Task task, const RunInputs& inputs) {
  return options_of(recipe, task, inputs, example_of(recipe, inputs));
}

TrainingRun::TrainingRun(const Recipe& recipe, Task task, RunInputs inputs, Invocation invocation)
    : recipe_(recipe),
      task_(task),
      inputs_(std::move(inputs)),
      invocation_(std::move(invocation)),
      length_(recipe, inputs_.data.train, inputs_.max_seq_length),
      example_(example_of(recipe, inputs_)),
      options_(options_of(recipe, task, inputs_, example_)),
      gpu_(options_.device),
      plan_(plan_of(options_, recipe.micro_batch_size)),
      arena_(plan_.device, options_.device),
      host_(plan_.host, Arena::Pinned{}),
      queue_(options_.device, arena_, host_),
      trainer_(std::make_unique<Trainer>(queue_, options_)),
      saver_(std::make_unique<CheckpointSaver>(queue_, trainer_->params(), trainer_->optimizer(),
                                               trainer_->snapshot())),
      fingerprint_(data_fingerprint(inputs_.data.train, inputs_.max_seq_length)),
      base_fingerprint_(options_.lora
                            ? weights_fingerprint(inputs_.model.folder, options_.model.tied)
                            : std::nullopt),
      computed_on_(what_computes(options_.device)) {
  for (const std::string& line : warnings(inputs_.data.lint)) log::warn("{}", line);
  if (const auto asked = asked_example(recipe, inputs_); asked && !example_)
    log::warn(
        "no text is generated during the run: the prompt of the example has {}, and the model {}. "
        "eval.evaluate_example chooses another",
        count(std::ssize(asked->tokens), "token"),
        count(inputs_.model.config.max_positions, "position"));
  if (length_.warmup_steps() >= length_.steps())
    log::warn(
        "the warm-up of {} is not shorter than the run of {}: the learning rate never reaches its "
        "peak",
        count(length_.warmup_steps(), "step"), length_.steps());
}

MicroBatches TrainingRun::micro_batches(const Dataset& dataset) const {
  return {dataset, at_most_all(recipe_.micro_batch_size, dataset), batch_options(recipe_, inputs_)};
}

void TrainingRun::rehearse() {
  log::say("Verifying settings ...");
  const Dataset& train = inputs_.data.train;
  std::vector<int64_t> order(static_cast<size_t>(train.size()));
  std::iota(order.begin(), order.end(), 0);
  const auto micro = static_cast<size_t>(at_most_all(recipe_.micro_batch_size, train));
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(micro), order.end(),
                    [&](int64_t a, int64_t b) {
                      return train.inputs_of(a, inputs_.max_seq_length) >
                             train.inputs_of(b, inputs_.max_seq_length);
                    });
  MicroBatches data = micro_batches(train);
  data.start(std::span(order).first(micro));
  double loss = trainer_->probe(data).loss;
  if (const Dataset& held = inputs_.data.validation; held.size() > 0 && std::isfinite(loss)) {
    Sampler in_order(held.size(), at_most_all(recipe_.micro_batch_size, held), 0, false);
    MicroBatches one = micro_batches(held);
    one.start(in_order.ids(0));
    loss = trainer_->evaluate(one).mean();
  }
  require(std::isfinite(loss), Fault::file,
          "before the first step the loss is {}: the weights of {} are damaged, or do not fit in "
          "{}; try precision 32-true",
          loss, inputs_.model.name, name_of(options_.precision));
  queue_.tell_measured();
  if (task_ != Task::demo) predict();
  rehearse_save();
  gpu_.setup_done();
}

std::optional<double> TrainingRun::validate() {
  const Dataset& held = inputs_.data.validation;
  if (held.size() == 0) return std::nullopt;
  const int64_t micro = at_most_all(recipe_.micro_batch_size, held);
  const int64_t samples =
      recipe_.eval_max_iters <= held.size() / micro ? recipe_.eval_max_iters * micro : held.size();
  Sampler in_order(held.size(), samples, 0, false);
  MicroBatches data = micro_batches(held);
  data.start(in_order.ids(0));
  const Evaluation found = trainer_->evaluate(data);
  val_loss_.reset();
  if (found.targets == 0) return std::nullopt;
  val_loss_ = found.mean();
  require(std::isfinite(*val_loss_), Fault::usage,
          "step {}: the loss on held-out data is {}: the training diverged. Lower the learning "
          "rate or set train.max_norm",
          step_, *val_loss_);
  return val_loss_;
}

std::string TrainingRun::sample_text() {
  GenerateOptions options;
  options.max_new_tokens = *recipe_.eval_max_new_tokens;
  options.seed = static_cast<uint64_t>(recipe_.seed);
  set_stops(options, options_.model, *inputs_.tokenizer,
            {inputs_.data.style, inputs_.data.chat_template});
  return inputs_.tokenizer->decode_after(
      example_->tokens, generate(queue_, *trainer_->decoder(), example_->tokens, options));
}

void TrainingRun::evaluate_and_show(Progress& progress) {
  const auto start = Clock::now();
  const auto loss = validate();
  const double seconds = since(start);
  if (loss) log::say("{}", validation_line(length_.iterations(step_), *loss, seconds));
  if (example_ && trainer_->decoder() != nullptr) {
    const std::string text = sample_text();
    log::say("{}\n{}\n", example_->prompt, text);
    samples_.push_back({.step = step_, .prompt = example_->prompt, .text = text});
  }
  const double all = since(start);
  eval_seconds_ += all;
  progress.exclude(all);
}

// LitGPT counts log_interval in micro-batches: a step is logged if one of its own is due.
bool TrainingRun::is_logged(int64_t iterations, int64_t micro_batches) const {
  const int64_t every = recipe_.log_interval;
  return iterations / every > (iterations - micro_batches) / every || step_ == length_.steps();
}

template <class Body>
void TrainingRun::spend_on_saving(Progress& progress, const Body& body) {
  const auto start = Clock::now();
  body();
  const double seconds = since(start);
  save_seconds_ += seconds;
  progress.exclude(seconds);
}

void TrainingRun::take_step(StepBatches& batches, Progress& progress) {
  MicroBatches& data = batches.of(step_);
  const auto start = Clock::now();
  const double flops_before = queue_.total().flops;
  const bool last = step_ + 1 >= length_.steps();
  const StepResult r = [&] {
    try {
      return trainer_->step(data, step_, last ? nullptr : &batches, [&] { gpu_.sample(); });
    } catch (const Error& e) {
      if (e.fault() == Fault::usage) end_not_finite(e, data);
      throw;
    }
  }();
  const double seconds = since(start);
  flops_ += queue_.total().flops - flops_before;
  // A step counts when the checkpoint that was written meanwhile is complete: else it could be more
  // than save_interval steps after the last one that is.
  spend_on_saving(progress, [&] { saver_->wait(); });
  ++step_;
  tokens_ += r.tokens - r.padding;
  padding_ += r.padding;
  targets_ += r.targets;
  if (!r.skipped && !r.masked) {
    if (!first_loss_) first_loss_ = r.loss;
    last_loss_ = r.loss;
    good_ = saved_;
  }
  if (step_ == first_step_ + 1) first_seconds_ = seconds;
  after_step(r, seconds, progress);
  count_skipped(r, data);
}

void TrainingRun::after_step(const StepResult& r, double seconds, Progress& progress) {
  const bool evaluated = step_ % recipe_.eval_interval == 0 && step_ < length_.steps();
  if (evaluated) evaluate_and_show(progress);
  const int64_t iterations = length_.iterations(step_);
  const double iter_time = seconds / static_cast<double>(std::max<int64_t>(1, r.micro_batches));
  if (is_logged(iterations, r.micro_batches) || evaluated) {
    MetricsRow row{.epoch = length_.epoch_after(step_ - 1),
                   .iter = iterations,
                   .step = step_,
                   .iter_time = iter_time,
                   .learning_rate = r.lr,
                   .tokens = r.tokens - r.padding,
                   .total_tokens = tokens_};
    if (!r.masked) {
      row.loss = r.loss;
      row.grad_norm = r.grad_norm;
    }
    if (evaluated) row.val_loss = val_loss_;
    metrics_->write(row);
    if (!progress.replaces_lines() && !r.masked)
      log::say("{}", iteration_line({.epoch = row.epoch,
                                     .iter = iterations,
                                     .step = step_,
                                     .loss = r.loss,
                                     .val_loss = val_loss_,
                                     .seconds = iter_time,
                                     .stepped = true}));
  }
  progress.step(
      {.loss = r.masked ? last_loss_.value_or(0) : r.loss, .lr = r.lr, .tokens = r.tokens});
}

void TrainingRun::predict() {
  const auto calibration = find_calibration(options_.device);
  if (!calibration || !calibration->types.contains(type_of_products(options_))) return;
  calibration_ = fmt::format("{} of {}", calibration->name, calibration->date);
  predicted_seconds_ =
      estimate_run(options_, cost_model(*calibration, options_), recipe_, inputs_).seconds;
}

void TrainingRun::train() {
  const Dataset& samples = inputs_.data.train;
  StepBatches batches(samples, at_most_all(recipe_.global_batch_size, samples),
                      at_most_all(recipe_.micro_batch_size, samples),
                      static_cast<uint64_t>(recipe_.seed), batch_options(recipe_, inputs_));
  const Logger logger = recipe_.logger_name;
  const StopSignals stop;  // before anything shows that the training began
  remove_leftovers(recipe_.out_dir);
  if (task_ != Task::demo) move_earlier_run();
  metrics_ = resumed_ && resumes_here() ? MetricsLog::resume(logger, recipe_.out_dir, first_step_)
                                        : MetricsLog(logger, recipe_.out_dir);
  const double earlier = seconds_;
  queue_.reset_totals();
  Progress progress(length_.limited() ? length_.steps() : 0, step_);
  if (recipe_.initial_validation && step_ == 0) {
    evaluate_and_show(progress);
    metrics_->write({.val_loss = val_loss_});
  }
  const auto stopped = [&] { return stop.caught() != 0 || step_ >= stop_after_; };
  out_of_time_ = step_ > 0 && recipe_.max_time && seconds_ >= *recipe_.max_time;
  while (step_ < length_.steps() && !stopped() && !out_of_time_) {
    take_step(batches, progress);
    seconds_ = earlier + progress.seconds();
    out_of_time_ = recipe_.max_time && seconds_ >= *recipe_.max_time;
    const bool due = recipe_.save_interval && step_ % *recipe_.save_interval == 0;
    if (due && step_ < length_.steps() && !stopped())
      spend_on_saving(progress, [&] { save(step_folder(), false); });
  }
  progress.finish();
  gpu_.training_done();
  here_seconds_ = seconds_ - earlier;
  ops_seconds_ = queue_.seconds();
  // On a GPU ops are timed only where they are waited for, one by one.
  if (ops_seconds_ > 0) {
    ops_ = longest_ops(queue_, 8);
    op_table_ = op_table(queue_, 8);
  }
  if (step_ == length_.steps()) {
    late_signal_ = stop.caught();
    return;
  }
  signal_ = stop.caught();
  if (stopped() || out_of_time_) {
    if (step_ == first_step_ || saved_ != step_folder()) save(step_folder(), false);
    saver_->wait();
    if (signal_ == 0) late_signal_ = stop.caught();
  }
}

void TrainingRun::finish() {
  write_text(unfinished_mark(), "The last validation and the report of this run are still due.\n");
  // First: a validation may take long, and be stopped.
  {
    const auto start = Clock::now();
    const StopSignals stop;
    save(fs::path(recipe_.out_dir) / "final", true);
    saver_->wait();
    save_seconds_ += since(start);
    signal_ = stop.caught() != 0 ? stop.caught() : late_signal_;
  }
  finish_rest();
}

void TrainingRun::finish_rest() {
  prune_checkpoints();
  if (!metrics_) metrics_ = MetricsLog::resume(recipe_.logger_name, recipe_.out_dir, step_);
  if (const auto made = last_validation()) {
    val_loss_ = made;
    log::say("{}", final_evaluation_line(*made));
  } else if (signal_ == 0 && recipe_.final_validation && task_ != Task::demo &&
             inputs_.data.validation.size() > 0) {
    write_report();  // a validation may end with the process
    const auto start = Clock::now();
    // As LitGPT: all held-out samples after fine-tuning, eval.max_iters after pretraining.
    const int64_t some = recipe_.eval_max_iters;
    if (task_ != Task::pretrain) recipe_.eval_max_iters = INT64_MAX;
    const auto loss = validate();
    recipe_.eval_max_iters = some;
    eval_seconds_ += since(start);
    if (loss) {
      log::say("{}", final_evaluation_line(*loss));
      metrics_->write({.epoch = length_.epoch_after(std::max<int64_t>(0, step_ - 1)),
                       .iter = length_.iterations(step_),
                       .step = step_,
                       .total_tokens = tokens_,
                       .val_loss = loss});
    }
  }
  write_report();
  std::error_code error;
  if (signal_ == 0) fs::remove(unfinished_mark(), error);
}

void TrainingRun::write_report() const {
  const RunSummary s = summary();
  const auto rows = metrics_->rows();
  write_text(fs::path(recipe_.out_dir) / "loss.svg",
             chart_svg(loss_chart(rows, fmt::format("{}: loss", s.model))));
  write_text(report_file(), report_html(s, rows));
}

RunSummary TrainingRun::summary() const {
  RunSummary s;
  s.command = invocation_.command;
  s.program = invocation_.program;
  s.model = inputs_.model.name;
  s.device = device_name(options_.device);
  s.processor = cpu_model();
  s.threads = num_threads();
  s.precision = std::string(name_of(options_.precision));
  s.trainable = trainer_->params().spec().trainable_count();
  s.frozen = trainer_->params().spec().parameter_count() - s.trainable;
  s.steps = step_;
  s.resumed_after = resumed_ ? std::optional(first_step_) : std::nullopt;
  s.total_steps = length_.limited() ? length_.steps() : 0;
  s.epochs = static_cast<double>(step_) / static_cast<double>(length_.steps_per_epoch());
  if (signal_ != 0 && !complete()) s.stopped_by = StopSignals::name_of(signal_);
  if (out_of_time_) s.stopped_by = "train.max_time";
  s.train_seconds = seconds_;
  s.eval_seconds = eval_seconds_;
  s.save_seconds = save_seconds_;
  s.input_tokens = targets_;
  s.tokens_with_prompt = tokens_;
  s.tokens_with_padding = tokens_ + padding_;
  s.flops = here_seconds_ > 0 ? flops_ * seconds_ / here_seconds_ : 0;
  // The first step of a process touches memory, and on a GPU records graphs, for all that follow.
  const int64_t later = step_ - first_step_ - 1;
  s.step_seconds =
      later > 0 ? (here_seconds_ - first_seconds_) / static_cast<double>(later) : here_seconds_;
  s.predicted_seconds = predicted_seconds_;
  s.calibration = calibration_;
  s.peak_flops_per_second = gemm_peak(options_.device, types_of(options_.precision).compute);
  s.ops_seconds = ops_seconds_;
  s.ops = ops_;
  s.memory = memory_use(plan_.device, arena_);
  s.host_memory = memory_use(plan_.host, host_);
  s.process_bytes = peak_resident_bytes();
  s.gpu = gpu_.use(context_bytes_);
  s.first_loss = first_loss_;
  s.last_loss = last_loss_;
  s.val_loss = val_loss_;
  s.checkpoint = saved_.string();
  s.recipe = settings();
  s.samples = samples_;
  s.started = started_;
  s.resumed = began_;
  s.ended = std::chrono::system_clock::now();
  return s;
}

std::string TrainingRun::report() const {
  const RunSummary s = summary();
  const std::string gpu =
      s.gpu ? "\n" + gpu_table(*s.gpu, s.memory.planned_bytes, s.memory.measured_bytes) : "";
  return closing_block(s) + "\n" + memory_table(s.memory, s.host_memory) + gpu + "\n" + op_table_;
}

}  // namespace capstan
