// What a run measured, and what it reports at its end.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/parallel.h"
#include "base/units.h"
#include "machine/name.h"
#include "machine/peak.h"
#include "ops/cpu/blas.h"
#include "plan/history.h"
#include "run/run.h"

namespace capstan {

void TrainingRun::measure_process(double earlier_seconds) {
  measured_.seconds = record_.seconds - earlier_seconds;
  gather_ranks();
  measured_.ops_seconds = queue_.seconds();
  // On a GPU, ops are timed only if each one is waited for.
  if (measured_.ops_seconds == 0) return;
  measured_.ops = longest_ops(queue_, 8);
  measured_.op_table = op_table(queue_, 8);
}

void TrainingRun::gather_ranks() {
  // Of the same span, which ends here.
  const double waited_seconds = waited() - measured_.waited_apart;
  RankUse mine{.seconds = display_.seconds(),
               .waited_seconds = waited_seconds,
               .planned_bytes = plan_.device.total_bytes,
               .measured_bytes = memory_use(plan_.device, arena_).measured_bytes,
               .tokens = measured_.tokens,
               .flops = measured_.flops,
               .process = ::getpid(),
               .gpu = options_.device == Device::cuda ? gpu_index() : -1};
  measured_.ranks = team_.gather(mine);
}

// Ranks on CPUs have cores of their own; those on GPUs may share one.
size_t TrainingRun::devices_used() const {
  if (options_.device != Device::cuda) return static_cast<size_t>(team_.size());
  std::set<std::pair<std::string, int>> gpus = {{team_.hosts()[0], gpu_index()}};
  for (size_t r = 0; r < measured_.ranks.size(); ++r)
    gpus.emplace(team_.hosts()[r], measured_.ranks[r].gpu);
  return gpus.size();
}

// What the ranks of this process have on this one's GPU.
BytesOnGpu TrainingRun::memory_on_gpu() const {
  const MemoryUse own = memory_use(plan_.device, arena_);
  BytesOnGpu sum{own.planned_bytes, own.measured_bytes};
  const auto me = static_cast<size_t>(team_.group().rank());
  for (size_t r = 0; r < measured_.ranks.size(); ++r) {
    const RankUse &rank = measured_.ranks[r], &mine = measured_.ranks[me];
    if (r == me || rank.gpu != mine.gpu || rank.process != mine.process ||
        team_.hosts()[r] != team_.hosts()[me])
      continue;
    sum.planned += rank.planned_bytes;
    sum.allocated += rank.measured_bytes;
  }
  return sum;
}

double TrainingRun::step_seconds() const {
  const int64_t later = record_.step - first_step() - 1;
  return later > 0 ? (measured_.seconds - measured_.first_step_seconds) / static_cast<double>(later)
                   : measured_.seconds;
}

// Fewer steps than kEnough say little of their mean. Of the ranks' memory it is that which was
// furthest from its plan, or else the most.
void TrainingRun::append_to_history() const {
  constexpr int64_t kEnough = 5;
  const int64_t steps = record_.step - first_step();
  const std::filesystem::path path = history_path();
  if (!team_.leads() || steps < kEnough || path.empty()) return;
  const auto worth_telling = [](const RankUse& r) {
    return std::pair(std::abs(r.measured_bytes - r.planned_bytes), r.planned_bytes);
  };
  const RankUse& rank = *std::max_element(
      measured_.ranks.begin(), measured_.ranks.end(),
      [&](const RankUse& a, const RankUse& b) { return worth_telling(a) < worth_telling(b); });
  // A step that is traced takes longer than others.
  const bool timed = !traced_;
  append_history(path,
                 {.date = history_date(std::chrono::system_clock::now()),
                  .device = machine_name(options_.device),
                  .calibration = prediction_.calibration,
                  .from_data_sheet = prediction_.from_data_sheet,
                  .model = inputs_.model.name,
                  .precision = std::string(name_of(options_.precision)),
                  .mesh = team_.size() == 1 ? "one rank" : mesh_name(options_),
                  .ranks = team_.size(),
                  .steps = steps,
                  .predicted_step_seconds = prediction_.step_seconds,
                  .measured_step_seconds = timed ? step_seconds() : 0,
                  .predicted_run_seconds = prediction_.step_seconds * static_cast<double>(steps),
                  .measured_run_seconds = timed ? measured_.seconds : 0,
                  .predicted_bytes = rank.planned_bytes,
                  .measured_bytes = rank.measured_bytes});
}

RunSummary TrainingRun::summary() const {
  RunSummary s;
  s.command = invocation_.command;
  s.program = invocation_.program;
  s.model = inputs_.model.name;
  s.device = device_name(options_.device);
  s.processor = cpu_model();
  s.threads = num_threads();
  if (options_.device == Device::cpu) s.kernels = cpu::blas().name();
  s.precision = precision_name(options_);
  s.trainable = trainer_->params().spec().trainable_count();
  s.frozen = trainer_->params().spec().parameter_count() - s.trainable;
  s.steps = record_.step;
  s.resumed_after = resumed_after_;
  s.total_steps = length_.limited() ? length_.steps() : 0;
  s.epochs = static_cast<double>(record_.step) / static_cast<double>(length_.steps_per_epoch());
  if (stop_.signal() != 0 && !complete()) s.stopped_by = name_of_signal(stop_.signal());
  if (stop_.out_of_time()) s.stopped_by = "train.max_time";
  if (out_of_patience()) s.stopped_by = "train.patience";
  s.train_seconds = record_.seconds;
  s.eval_seconds = record_.eval_seconds;
  s.save_seconds = record_.save_seconds;
  s.input_tokens = record_.targets;
  s.tokens_with_prompt = record_.tokens;
  s.tokens_with_padding = record_.tokens + record_.padding;
  double flops = 0;
  for (const RankUse& rank : measured_.ranks) flops += rank.flops;
  s.flops = measured_.seconds > 0 ? flops * record_.seconds / measured_.seconds : 0;
  s.ranks = measured_.ranks;
  s.hosts = team_.hosts();
  s.strategy = mesh_name(options_);
  s.step_seconds = step_seconds();
  s.predicted_seconds = prediction_.step_seconds;
  s.calibration = prediction_.calibration;
  if (!peak_)
    peak_ = gemm_peak(options_.device, types_of(options_.precision).compute, uses_tf32(options_));
  s.peak_flops_per_second = *peak_ * static_cast<double>(devices_used());
  s.ops_seconds = measured_.ops_seconds;
  s.ops = measured_.ops;
  s.memory = memory_use(plan_.device, arena_);
  s.host_memory = memory_use(plan_.host, host_);
  s.process_bytes = peak_resident_bytes();
  s.gpu = gpu_.use(context_bytes_);
  s.gpu_memory = memory_on_gpu();
  s.first_loss = record_.first_loss;
  s.last_loss = record_.last_loss;
  s.val_loss = record_.val_loss;
  s.best_val_loss = record_.best_val_loss;
  s.best_step = record_.best_step;
  if (recipe_.keep_best && record_.best_val_loss) s.best = folder_.best().string();
  if (display_.logs()) s.validation_note = rising_validation(display_.metrics().rows());
  s.checkpoint = saved_.string();
  s.recipe = settings();
  s.samples = display_.samples();
  s.started = record_.started;
  s.resumed = began_;
  s.ended = std::chrono::system_clock::now();
  return s;
}

std::optional<std::string> TrainingRun::why_early() const {
  if (!out_of_patience()) return {};
  return fmt::format(
      "train.patience ended the run after step {}: {} had no lower loss than {:.4f}, after step "
      "{}{}",
      record_.step, count(record_.validations_since, "validation"), *record_.best_val_loss,
      record_.best_step,
      recipe_.keep_best ? fmt::format("; that model is {}", folder_.best().string())
                        : "; train.keep_best would have kept that model");
}

std::string TrainingRun::report() const {
  const RunSummary s = summary();
  const std::string gpu =
      s.gpu ? "\n" + gpu_table(*s.gpu, s.gpu_memory.planned, s.gpu_memory.allocated) : "";
  return closing_block(s) + "\n" + memory_table(s.memory, s.host_memory) + gpu + "\n" +
         rank_table(s) + measured_.op_table;
}

}  // namespace capstan
