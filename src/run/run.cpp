#include "run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "infer/evaluation_watch.h"
#include "infer/inference.h"
#include "plan/fit.h"
#include "recipe/check.h"
#include "recipe/recipe_yaml.h"
#include "report/work_bar.h"
#include "run/agreed_stop.h"
#include "run/fingerprint.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A recipe may request batches of any size: clamps them, so that sums and products do not overflow.
int64_t at_most_all(int64_t batch, const Dataset& dataset) {
  return std::min(batch, std::max<int64_t>(1, dataset.size()));
}

// The record that eval.evaluate_example selects, from the validation set if there is one.
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
            "eval.evaluate_example: {} requested, but there {} only {}, numbered from 0", index,
            part.size() == 1 ? "is" : "are", count(part.size(), "sample"));
  }
  return in.data.example(part, index, *in.tokenizer);
}

// None if the prompt is longer than the model's positions.
std::optional<ExamplePrompt> example_of(const Recipe& r, const RunInputs& in) {
  auto example = asked_example(r, in);
  if (example && std::ssize(example->tokens) > in.model.config.max_positions) example.reset();
  return example;
}

TrainOptions options_of(const Recipe& r, Task task, const RunInputs& in,
                        const std::optional<ExamplePrompt>& example, const Communicator& group = {},
                        int machines = 1) {
  check_recipe(r, task);
  require(!(r.keep_best || r.patience) || in.data.validation.size() > 0, Fault::usage,
          "{}: needs samples that are held out; set data.val_split_fraction, or val files",
          r.keep_best ? "train.keep_best" : "train.patience");
  TrainOptions o = train_options(r, task, in);
  o.sample_positions = in.sample_positions;
  if (example)
    o.sample_positions = std::min(in.model.config.max_positions,
                                  std::ssize(example->tokens) + *r.eval_max_new_tokens);
  set_ranks(o, r, group.ranks(), {.room = group.needs_room()}, machines);
  return o;
}

}  // namespace

TrainOptions run_options(const Recipe& recipe, Task task, const RunInputs& inputs) {
  Recipe alone = recipe;  // the caller sets the ranks
  alone.use_one_rank();
  return options_of(alone, task, inputs, example_of(recipe, inputs));
}

// Every rank judges all ranks, so that all choose alike; then each plans its own memory.
RunPlan TrainingRun::make_plan() {
  std::string_view why;
  require(options_.device != Device::cuda || cuda_present(&why), Fault::device,
          "accelerator: cuda requested, but it cannot be used: {}; use --accelerator cpu", why);
  require_precision(options_.precision, options_.device);
  const Ranks mine = options_.ranks;
  const Room room = team_.room_for(options_.device);
  if (options_.choose_overlap) choose_overlap(room);
  Fit fit = fit_of(options_, recipe_.micro_batch_size.size, room);
  agree_on(fit, mine);
  if (fit.dropped_staging > 0)
    log::warn(
        "not enough host memory for a copy of the training state ({}): training pauses while a "
        "checkpoint is written",
        format_bytes(static_cast<double>(fit.dropped_staging)));
  if (options_.recompute_to_fit)
    log::say("activations: {}, the least recomputation that fits into {}",
             name_of(fit.options.recompute),
             format_bytes(static_cast<double>(fit.available.device)));
  options_ = fit.options;
  options_.ranks = mine;
  return std::move(fit.plan);
}

int64_t TrainingRun::measure_context() {
  const int64_t bytes = gpu_.process_bytes();
  team_.sync();
  return bytes;
}

TrainingRun::TrainingRun(const Recipe& recipe, Task task, RunInputs inputs, Invocation invocation)
    : TrainingRun(recipe, task, std::make_shared<const RunInputs>(std::move(inputs)),
                  std::move(invocation)) {}

TrainingRun::TrainingRun(const Recipe& recipe, Task task, SharedInputs inputs,
                         Invocation invocation, const Communicator& group)
    : recipe_(recipe),
      task_(task),
      shared_inputs_(std::move(inputs)),
      inputs_(*shared_inputs_),
      invocation_(std::move(invocation)),
      team_(group),
      length_(recipe, inputs_.data.train, inputs_.max_seq_length),
      example_(example_of(recipe, inputs_)),
      options_(options_of(recipe, task, inputs_, example_, group, team_.machines())),
      gpu_(options_.device),
      plan_(make_plan()),
      context_bytes_(measure_context()),
      arena_(plan_.device, options_.device),
      host_(plan_.host, Arena::Pinned{}),
      queue_(options_.device, arena_, host_),
      trainer_(std::make_unique<Trainer>(queue_, options_, group)),
      saver_(std::make_unique<CheckpointSaver>(queue_, trainer_->params(), trainer_->optimizer(),
                                               trainer_->snapshot(), group.open_channel("files"))),
      identity_{.data = data_fingerprint(inputs_.data.train, inputs_.max_seq_length),
                .base = options_.lora
                            ? weights_fingerprint(inputs_.model.folder, options_.model.tied)
                            : std::nullopt,
                .base_checksum = {},
                .machine = {},
                .order_of_sums = order_of_sums(options_, micro_batches_of_a_step())},
      folder_({.out_dir = recipe.out_dir,
               .resume = recipe.resume,
               .keep_last = recipe.keep_last,
               .step_digits = task == Task::pretrain ? 8 : 6,
               .scratch = task == Task::demo && recipe.out_dir == defaults_of(task).out_dir}),
      display_(length_, recipe.log_interval),
      stop_(recipe.max_time) {
  require_same_run();
  require_traceable();
  check_loggers(recipe.logger_name);
  if (team_.leads()) check_outputs(recipe);
  if (recipe.strategy.kind == Strategy::hybrid && options_.sharding.replicas == 1 &&
      team_.size() > 1)
    log::info("strategy: hybrid on {} is zero3",
              team_.machines() > 1 ? "machines with different parts of the model" : "one machine");
  if (options_.mesh.ranks() > 1 && trainer_->params().mesh().data().size() == 1 &&
      recipe.strategy.kind != Strategy::automatic && recipe.strategy.kind != Strategy::ddp)
    log::info("strategy: {} has no effect, since no two ranks have the same part of the model",
              name_of(recipe.strategy));
  if (const std::string note = precision_note(options_); !note.empty()) log::info("{}", note);
  for (const std::string& line : warnings(inputs_.data.lint)) log::warn("{}", line);
  if (const auto asked = asked_example(recipe, inputs_); asked && !example_)
    log::warn(
        "no text is generated during the run: the example's prompt has {}, but the model has only "
        "{}. Choose another with eval.evaluate_example",
        count(std::ssize(asked->tokens), "token"),
        count(inputs_.model.config.max_positions, "position"));
  if (length_.warmup_steps() >= length_.steps())
    log::warn(
        "the warm-up of {} is as long as the run of {} or longer: the learning rate never reaches "
        "its peak",
        count(length_.warmup_steps(), "step"), length_.steps());
}

void TrainingRun::require_same_run() {
  if (team_.size() == 1) return;
  team_.require_same("the program", invocation_.program, "install the same version everywhere");
  std::string recipe;
  for (const YamlLine& line : yaml_lines(recipe_, task_)) recipe += line.text + "\n";
  team_.require_same("the recipe", recipe, "start all ranks with the same command");
  team_.require_agreement("what they will exchange", plan_.collectives,
                          "start all ranks with the same command");
  team_.require_same("the training data", identity_.data, "give all ranks the same files");
  team_.require_same(
      "the model's weights",
      weights_fingerprint(inputs_.model.folder, options_.model.tied).value_or("none"),
      "give all ranks the same files");
}

int64_t TrainingRun::micro_batches_of_a_step() const {
  const Dataset& train = inputs_.data.train;
  const int64_t micro = micro_batch_for(train);
  return (at_most_all(recipe_.global_batch_size, train) + micro - 1) / micro;
}

int64_t TrainingRun::micro_batch_for(const Dataset& dataset) const {
  return at_most_all(recipe_.micro_batch_size.size, dataset);
}

MicroBatches TrainingRun::micro_batches(const Dataset& dataset) const {
  return {dataset, micro_batch_for(dataset), batch_options(recipe_, inputs_),
          batch_ranks(options_.ranks, options_.mesh)};
}

std::optional<double> TrainingRun::validate(int64_t most_micro_batches) {
  const Dataset& held = inputs_.data.validation;
  if (held.size() == 0) return std::nullopt;
  const int64_t micro = micro_batch_for(held);
  const int64_t samples =
      most_micro_batches <= held.size() / micro ? most_micro_batches * micro : held.size();
  Sampler in_order(held.size(), samples, 0, false);
  MicroBatches data = micro_batches(held);
  data.start(in_order.ids(0));
  WorkBar bar("validating", team_.leads());
  AgreedStop stop(team_, invocation_.stop);
  const int64_t all = data.count();
  int64_t done = 0;
  const Evaluation found = [&] {
    const EvaluationWatch watch([&] {
      bar.tell(++done, all, "micro-batches");
      return stop.after_part() == 0;
    });
    return trainer_->evaluate(data);
  }();
  missed_ = stop.signal() != 0;
  if (missed_) return std::nullopt;
  record_.val_loss.reset();
  if (found.targets == 0) return std::nullopt;
  record_.val_loss = found.mean();
  require(std::isfinite(*record_.val_loss), Fault::usage,
          "step {}: the validation loss is {}: training diverged. Lower the learning rate or set "
          "train.max_norm",
          record_.step, *record_.val_loss);
  return record_.val_loss;
}

std::optional<std::string> TrainingRun::sample_text() {
  struct Ended {};
  GenerateOptions options;
  options.max_new_tokens = *recipe_.eval_max_new_tokens;
  options.seed = static_cast<uint64_t>(recipe_.seed);
  set_stops(options, options_.model, *inputs_.tokenizer,
            {inputs_.data.style, inputs_.data.chat_template});
  AgreedStop stop(team_, invocation_.stop);
  try {
    return inputs_.tokenizer->decode_after(
        example_->tokens,
        generate(queue_, *trainer_->decoder(), example_->tokens, options, [&](int32_t) {
          if (stop.after_part() != 0) throw Ended();
        }));
  } catch (const Ended&) {
    return std::nullopt;
  }
}

template <class Body>
double TrainingRun::beside_training(const Body& body) {
  const double waited_until_now = waited();
  const auto start = Clock::now();
  body();
  measured_.waited_apart += waited() - waited_until_now;
  const double seconds = since(start);
  display_.exclude(seconds);
  return seconds;
}

template <class Body>
void TrainingRun::spend_on_saving(const Body& body) {
  record_.save_seconds += beside_training(body);
}

bool TrainingRun::spend_on_evaluation() {
  record_.eval_seconds += beside_training([&] { evaluate_and_show(); });
  return !missed_;
}

void TrainingRun::evaluate_and_show() {
  const auto start = Clock::now();
  if (validate()) display_.show_validation(record_, since(start));
  if (!missed_ && example_ && trainer_->decoder() != nullptr)
    if (const auto text = sample_text())
      display_.show_sample(record_.step, example_->prompt, *text);
}

bool TrainingRun::validates_after(int64_t step) const {
  return step == length_.steps() ? compares() : step % recipe_.eval_interval == 0;
}

// A signal ended it in the process before: then the metrics have the step, but no validation loss.
void TrainingRun::make_missed_validation() {
  if (!resumed_after_ || record_.step == 0 || !validates_after(record_.step) ||
      inputs_.data.validation.size() == 0)
    return;
  int missed = 0;
  if (team_.leads() && folder_.resumes_here())
    missed = display_.misses_validation(record_.step) ? 1 : 0;
  if (team_.of_leader(missed) == 0 || !spend_on_evaluation()) return;
  if (compares()) judge_validation();
  display_.show_missed_validation(record_, options_.schedule.at(record_.step - 1));
}

void TrainingRun::take_step(StepBatches& batches) {
  const int64_t step = record_.step;
  MicroBatches& data = batches.of(step);
  const auto start = Clock::now();
  begin_trace();
  const double flops_before = queue_.total().flops;
  const bool last = step + 1 >= length_.steps();
  const StepResult r = [&] {
    try {
      return of_all_ranks(
          trainer_->step(data, step, last ? nullptr : &batches, [&] { gpu_.sample(); }), data);
    } catch (const Error& e) {
      if (e.fault() == Fault::usage) end_not_finite(e, data);
      throw;
    }
  }();
  end_trace();
  const double seconds = since(start);
  measured_.flops += queue_.total().flops - flops_before;
  if (trace_) spend_on_saving([&] { write_step_trace(); });
  // Count a step only when the checkpoint written during it is complete. Otherwise the run could be
  // more than save_interval steps past the last complete checkpoint.
  if (saving_) spend_on_saving([&] { wait_for_save(); });
  if (record_.add(r) && !r.overflowed) good_ = saved_;
  if (record_.step == first_step() + 1) measured_.first_step_seconds = seconds;
  RunDisplay::Validated validated = RunDisplay::Validated::no;
  if (validates_after(record_.step))
    validated = spend_on_evaluation() ? RunDisplay::Validated::yes : RunDisplay::Validated::missed;
  if (validated == RunDisplay::Validated::yes && compares()) judge_validation();
  display_.show_step(r, record_, seconds, validated);
  count_skipped(r, data);
}

void TrainingRun::judge_validation() {
  if (!record_.val_loss) return;
  if (!record_.judge_validation() || !recipe_.keep_best) return;
  spend_on_saving([&] {
    saver_->save(save_request(folder_.best(), true));
    saving_ = true;
  });
}

// With the tokens and micro-batches of all ranks together.
StepResult TrainingRun::of_all_ranks(const StepResult& mine, const MicroBatches& data) {
  struct Counts {
    int64_t tokens = 0, padding = 0;
  };
  measured_.tokens += mine.tokens;
  StepResult all = mine;
  all.tokens = all.padding = 0;
  // Ranks that share a model or a sequence see the same tokens.
  const Mesh& mesh = trainer_->params().mesh();
  const bool counts =
      mesh.pipe().is_first() && mesh.tensor().rank() == 0 && mesh.context().rank() == 0;
  for (const Counts& c : team_.gather(counts ? Counts{mine.tokens, mine.padding} : Counts())) {
    all.tokens += c.tokens;
    all.padding += c.padding;
  }
  const int64_t micro = micro_batch_for(inputs_.data.train);
  all.micro_batches = (std::ssize(data.step_samples()) + micro - 1) / micro;
  return all;
}

StepBatches TrainingRun::step_batches(const Ranks& ranks, const Recipe& recipe) const {
  const Dataset& samples = inputs_.data.train;
  return {samples,
          at_most_all(recipe_.global_batch_size, samples),
          micro_batch_for(samples),
          static_cast<uint64_t>(recipe_.seed),
          batch_options(recipe, inputs_),
          ranks};
}

void TrainingRun::train() {
  StepBatches batches = step_batches(batch_ranks(options_.ranks, options_.mesh), recipe_);
  if (const int signal = agreed_signal(); signal != 0 && !complete())
    return stop_.interrupt(signal);
  if (team_.leads()) {
    remove_leftovers(folder_.path());
    folder_.move_earlier_run(resumed_after_);
    const RunLabels labels = labels_of(recipe_, task_, inputs_.model.name);
    display_.log_to(
        resumed_after_ && folder_.resumes_here()
            ? MetricsLog::resume(recipe_.logger_name, folder_.path(), first_step(), labels)
            : MetricsLog(recipe_.logger_name, folder_.path(), labels));
  }
  const double earlier = record_.seconds;
  queue_.reset_totals();
  measured_.waited_apart = waited();
  display_.begin_bar(record_.step);
  if (recipe_.initial_validation && record_.step == 0 && spend_on_evaluation())
    display_.show_initial_validation(record_);
  make_missed_validation();
  const auto stopped = [&] { return stop_.stops(record_.step, agreed_signal()); };
  if (record_.step > 0) stop_.note_time(team_.of_leader(record_.seconds));
  while (!complete() && !stopped() && !stop_.out_of_time()) {
    take_step(batches);
    record_.seconds = earlier + display_.seconds();
    stop_.note_time(team_.of_leader(record_.seconds));
    const bool due = recipe_.save_interval && record_.step % *recipe_.save_interval == 0;
    if (due && record_.step < length_.steps() && !stopped())
      spend_on_saving([&] { save(folder_.checkpoint(record_.step), false); });
  }
  display_.end_bar();
  warn_of_no_trace();
  gpu_.training_done();
  trainer_->params().settle(queue_);
  measure_process(earlier);
  append_to_history();
  const int signal = agreed_signal();
  if (complete() && !missed_) return stop_.note_late(signal);
  stop_.interrupt(signal);
  if (!stop_.stops(record_.step, signal) && !stop_.out_of_time()) return;
  const fs::path here = folder_.checkpoint(record_.step);
  const bool nothing_new = stop_.signal() != 0 && !trained();
  if (!nothing_new && (!trained() || saved_ != here)) save(here, false);
  wait_for_save();
  if (stop_.signal() == 0) stop_.note_late(agreed_signal());
  if (team_.leads() && stop_.signal() != 0) display_.end_log(RunEnd::stopped, {}, stop_asked());
}

int TrainingRun::agreed_signal() {
  for (const int caught : team_.gather(invocation_.stop.signal()))
    if (caught != 0) return caught;
  return 0;
}

void TrainingRun::check_stop() {
  if (const int signal = agreed_signal(); signal != 0) throw Stopped(signal);
}

void TrainingRun::finish() {
  if (team_.leads()) folder_.mark_unfinished();
  // Save first: the validation may take long, and may be interrupted.
  const auto start = Clock::now();
  save(folder_.final_model(), true);
  wait_for_save();
  record_.save_seconds += since(start);
  stop_.interrupt_late(agreed_signal());
  finish_rest();
}

void TrainingRun::finish_rest() {
  std::optional<double> made;
  if (team_.leads()) {
    folder_.prune();
    if (!display_.logs())
      display_.log_to(MetricsLog::resume(recipe_.logger_name, folder_.path(), record_.step,
                                         labels_of(recipe_, task_, inputs_.model.name)));
    made = display_.final_validation_logged(record_.step);
  }
  const auto write_report = [&] {
    if (team_.leads()) display_.write_report(folder_, summary());
  };
  if (team_.of_leader(made ? 1 : 0) != 0) {
    record_.val_loss = made;
    if (made) log::say("{}", final_evaluation_line(*made));
  } else if (stop_.signal() == 0 && recipe_.final_validation &&
             inputs_.data.validation.size() > 0) {
    write_report();  // the process may be killed during the validation
    team_.sync();    // the others wait here, where a slow disk is not taken for silence
    const auto start = Clock::now();
    // As in LitGPT: all held-out samples after fine-tuning, eval.max_iters after pretraining.
    const bool found =
        validate(task_ == Task::pretrain ? recipe_.eval_max_iters : INT64_MAX).has_value();
    record_.eval_seconds += since(start);
    if (found) display_.show_final_validation(record_);
    if (missed_) stop_.interrupt(agreed_signal());
  }
  write_report();
  if (!team_.leads()) return;
  // If the process is killed before the trackers have all of it, a resumed run tells them.
  const bool uninterrupted = stop_.signal() == 0;
  const bool delivered = display_.end_log(uninterrupted ? RunEnd::finished : RunEnd::stopped,
                                          folder_.small_results(), stop_asked());
  if (uninterrupted && !delivered) {
    stop_.interrupt_late(invocation_.stop.signal());
    missing_ = "its trackers do not have all of it";
  }
  if (stop_.signal() == 0) folder_.unmark();
}

// The rank that leads may take longer than the others; nobody counts that as silence.
void TrainingRun::wait_for_save() {
  if (!saving_) return;
  saving_ = false;
  saver_->wait();
  team_.sync();
}

std::exception_ptr TrainingRun::cause_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (e.fault() != Fault::peer) return error;
  } catch (...) {
    return error;
  }
  try {
    saver_->wait();
  } catch (const Error& e) {
    if (e.fault() != Fault::peer) return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
  return error;
}

}  // namespace capstan
