#include "run/run_display.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "recipe/options.h"
#include "recipe/values.h"
#include "report/curve.h"
#include "report/page.h"

namespace capstan {

RunLabels labels_of(const Recipe& recipe, Task task, const std::string& model) {
  RunLabels labels{.run = recipe.log_run.value_or(folder_name(recipe.out_dir)),
                   .group = recipe.log_group.value_or("")};
  if (const std::string project = environment_value("MLFLOW_EXPERIMENT_NAME"); !project.empty())
    labels.project = project;
  labels.project = recipe.log_project.value_or(labels.project);
  labels.params = {{"command", std::string(name_of(task))}, {"model", model}};
  for (const Option& o : options())
    if (o.used_by(task)) labels.params.emplace_back(o.key, value_of(recipe, o));
  return labels;
}

void RunDisplay::begin_bar(int64_t done) {
  bar_.emplace(length_.limited() ? length_.steps() : 0, done);
}

// LitGPT counts log_interval in micro-batches: a step is logged if one of its micro-batches is due.
bool RunDisplay::is_logged(int64_t iterations, int64_t micro_batches, int64_t step) const {
  return iterations / log_interval_ > (iterations - micro_batches) / log_interval_ ||
         step == length_.steps();
}

void RunDisplay::show_step(const StepResult& r, const RunRecord& record, double seconds,
                           Validated validated) {
  const int64_t iterations = length_.iterations(record.step);
  const double iter_time = seconds / static_cast<double>(std::max<int64_t>(1, r.micro_batches));
  if (is_logged(iterations, r.micro_batches, record.step) || validated != Validated::no) {
    MetricsRow row{.epoch = length_.epoch_after(record.step - 1),
                   .iter = iterations,
                   .step = record.step,
                   .iter_time = iter_time,
                   .learning_rate = r.lr,
                   .tokens = r.tokens - r.padding,
                   .total_tokens = record.tokens};
    if (!r.masked) {
      row.loss = r.loss;
      row.grad_norm = r.grad_norm;
    }
    if (validated == Validated::yes) row.val_loss = record.val_loss;
    if (metrics_) metrics_->write(row);
    if (!bar_->replaces_lines() && !r.masked)
      log::say("{}", iteration_line({.epoch = row.epoch,
                                     .iter = iterations,
                                     .step = record.step,
                                     .loss = r.loss,
                                     .val_loss = record.val_loss,
                                     .seconds = iter_time,
                                     .stepped = true}));
  }
  bar_->step(
      {.loss = r.masked ? record.last_loss.value_or(0) : r.loss, .lr = r.lr, .tokens = r.tokens});
}

void RunDisplay::show_validation(const RunRecord& record, double seconds) const {
  if (record.val_loss)
    log::say("{}", validation_line(length_.iterations(record.step), *record.val_loss, seconds));
}

void RunDisplay::show_sample(int64_t step, const std::string& prompt, const std::string& text) {
  log::say("{}\n{}\n", prompt, text);
  samples_.push_back({.step = step, .prompt = prompt, .text = text});
}

bool RunDisplay::misses_validation(int64_t step) const {
  bool there = false, validated = false;
  for (const MetricsRow& row : metrics_->rows()) {
    if (row.step != step) continue;
    there = true;
    validated = validated || row.val_loss;
  }
  return there && !validated;
}

// A final validation's row has no learning rate.
void RunDisplay::show_missed_validation(const RunRecord& record, double learning_rate) {
  if (!metrics_ || !record.val_loss) return;
  metrics_->write({.epoch = length_.epoch_after(record.step - 1),
                   .iter = length_.iterations(record.step),
                   .step = record.step,
                   .learning_rate = learning_rate,
                   .total_tokens = record.tokens,
                   .val_loss = record.val_loss});
}

void RunDisplay::show_initial_validation(const RunRecord& record) {
  if (metrics_) metrics_->write({.val_loss = record.val_loss});
}

void RunDisplay::show_final_validation(const RunRecord& record) {
  log::say("{}", final_evaluation_line(*record.val_loss));
  if (!metrics_) return;
  metrics_->write({.epoch = length_.epoch_after(std::max<int64_t>(0, record.step - 1)),
                   .iter = length_.iterations(record.step),
                   .step = record.step,
                   .total_tokens = record.tokens,
                   .val_loss = record.val_loss});
}

std::optional<double> RunDisplay::final_validation_logged(int64_t step) const {
  for (const MetricsRow& row : metrics_->rows())
    if (row.step == step && row.val_loss && !row.loss && !row.learning_rate) return row.val_loss;
  return std::nullopt;
}

void RunDisplay::write_report(const RunFolder& folder, const RunSummary& summary) const {
  const auto rows = metrics_->rows();
  write_text(folder.curve(), chart_svg(loss_chart(rows, fmt::format("{}: loss", summary.model))));
  write_text(folder.report(), report_html(summary, rows));
}

}  // namespace capstan
