// Saving, finding and resuming a run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/load_with_sums.h"
#include "checkpoint/manifest.h"
#include "ops/cpu/blas.h"
#include "recipe/recipe_yaml.h"
#include "report/work_bar.h"
#include "run/fingerprint.h"
#include "run/run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// The lines of `now` that `before` does not have.
std::vector<std::string> new_lines(const std::string& before, const std::string& now) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < now.size();) {
    const size_t end = std::min(now.find('\n', begin), now.size());
    const std::string line = now.substr(begin, end - begin);
    if (before.find(line + "\n") == std::string::npos)
      lines.push_back(line.substr(line.find_first_not_of(' ')));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string TrainingRun::settings() const {
  // Whether a run was resumed does not change what it computes.
  Recipe r = recipe_;
  r.resume = {};
  return recipe_yaml(r, task_);
}

TrainingState TrainingRun::state() const {
  TrainingState s;
  s.seed = static_cast<uint64_t>(recipe_.seed);
  s.epoch = static_cast<double>(record_.step) / static_cast<double>(length_.steps_per_epoch());
  s.samples = length_.samples_in(record_.step);
  s.dataset_samples = inputs_.data.train.size();
  s.dataset_fingerprint = identity_.data;
  s.base_fingerprint = identity_.base;
  s.base_checksum = identity_.base_checksum;
  s.computed_on = identity_.machine;
  s.order_of_sums = identity_.order_of_sums;
  s.recipe = settings();
  if (const LossScale& scale = trainer_->loss_scale(); scale.moves()) {
    s.loss_scale = scale.value();
    s.loss_scale_steps = scale.state().good_steps;
  }
  record_.write_to(s);
  return s;
}

SaveRequest TrainingRun::save_request(const fs::path& dir, bool is_final) const {
  SaveRequest request;
  request.dir = dir;
  request.state = state();
  request.extras = extra_files(recipe_, task_, inputs_);
  request.moments = !is_final;
  // Sync the metrics before the checkpoint gets its name: otherwise a resumed run could have a
  // permanent gap in them.
  if (display_.logs()) request.before_name = display_.metrics().sync_later();
  // As typed, if that is a path: PEFT looks only there.
  std::error_code error;
  const std::string typed = recipe_.checkpoint_dir.value_or("");
  request.base_model = fs::exists(typed, error) ? typed : inputs_.model.folder.string();
  request.config_like = inputs_.model.config_text;
  constexpr int64_t kAll = INT_MAX;
  request.keep = static_cast<int>(is_final ? 0 : std::min(recipe_.keep_last.value_or(0), kAll));
  return request;
}

void TrainingRun::save(const fs::path& dir, bool is_final) {
  saver_->save(save_request(dir, is_final));
  saving_ = true;
  saved_ = dir;
}

// In addition to the kept checkpoints, one is being written, or the final model.
void TrainingRun::warn_of_space() const {
  if (!recipe_.save_interval || !length_.limited()) return;
  const int64_t interval = *recipe_.save_interval;
  int64_t more = (length_.steps() - 1) / interval - record_.step / interval;
  if (recipe_.keep_last) {
    const int64_t there = resumed_after_ ? folder_.checkpoints() : 0;  // replaced by new ones
    more = std::min(more, std::max<int64_t>(0, *recipe_.keep_last - there));
  }
  std::error_code error;
  const double bytes = static_cast<double>(saver_->bytes()) * static_cast<double>(more + 1);
  const fs::space_info space = fs::space(folder_.path(), error);
  if (more < 1 || error || bytes <= static_cast<double>(space.available)) return;
  log::warn(
      "the checkpoints of this run may take {}, but {} has only {} free; lower train.keep_last or "
      "raise train.save_interval",
      format_bytes(bytes), recipe_.out_dir, format_bytes(static_cast<double>(space.available)));
}

void TrainingRun::verify_save() {
  constexpr int64_t kQuick = int64_t{1} << 29;
  const bool several =
      (recipe_.save_interval && *recipe_.save_interval < length_.steps()) || recipe_.max_time;
  // A resumed run may replace an existing checkpoint once the next is written.
  const bool replaces = resumed_after_ && folder_.resumes_here() && recipe_.keep_last;
  if (team_.leads()) {
    check_can_save(folder_.final_model(), saver_->bytes(), several && !replaces ? 2 : 1);
    warn_of_space();
  }
  SaveRequest request = save_request(folder_.path() / ".rehearsal", false);
  request.keep = 0;
  request.max_bytes = kQuick;
  const fs::path rehearsal = request.dir;
  try {
    saver_->save(std::move(request));
    saving_ = true;
    wait_for_save();
  } catch (...) {  // it may be complete: the disk can fail after it got its name
    if (team_.leads()) remove_folder(rehearsal);
    throw;
  }
  if (team_.leads()) remove_folder(rehearsal);
  team_.sync();
}

void TrainingRun::check_same_run(const FoundCheckpoint& c) const {
  const TrainingState now = state();
  const auto same = [&](const char* what, const auto& then, const auto& given) {
    require(then == given, Fault::usage,
            "resume: {} was saved with {} {}, but this run has {}. Resume with the same value, or "
            "start a new run with another --out_dir",
            c.dir.string(), what, then, given);
  };
  same("seed", c.state.seed, now.seed);
  same("a training set of", c.state.dataset_samples, now.dataset_samples);
  require(c.state.dataset_fingerprint == now.dataset_fingerprint, Fault::usage,
          "resume: {} was saved with other data (or another tokenizer, prompt style or "
          "max_seq_length), so the run cannot continue at the same sample. Resume with the same "
          "data, or start a new run with another --out_dir",
          c.dir.string());
  same("a position in the data of", c.state.samples, length_.samples_in(c.state.step));
  require(!c.state.base_fingerprint || c.state.base_fingerprint == now.base_fingerprint,
          Fault::usage,
          "resume: {} was trained on other base weights than those now in {}. Resume with the "
          "original weights, or start a new run with another --out_dir",
          c.dir.string(), inputs_.model.folder.string());
  auto changed = new_lines(c.state.recipe, now.recipe);
  const auto scale = [](const std::string& line) { return line.starts_with("loss_scale:"); };
  if (c.state.loss_scale && std::erase_if(changed, scale) > 0)
    log::warn("train.loss_scale is for the start of a run: this one goes on with {:g}",
              *c.state.loss_scale);
  if (!changed.empty()) log::warn("resumed with changed settings: {}", fmt::join(changed, " · "));
}

void TrainingRun::warn_of_other_bits(const FoundCheckpoint& c) const {
  const TrainingState& s = c.state;
  const std::string here =
      s.order_of_sums ? identity_.machine
                      : what_computes_by_ranks(options_.device, options_.ranks.size, options_.mesh);
  if (s.computed_on.value_or(here) != here)
    log::warn(
        "{} was computed on {}, and the run continues on {}: its bits may differ from an "
        "uninterrupted run",
        c.dir.string(), *s.computed_on, here);
  if (s.order_of_sums.value_or(identity_.order_of_sums) != identity_.order_of_sums)
    log::warn(
        "{} added the gradients of a step in this order: {}. Now it is: {}. The bits of the run "
        "will differ from those of an uninterrupted one",
        c.dir.string(), *s.order_of_sums, identity_.order_of_sums);
}

void TrainingRun::restore(const FoundCheckpoint& c) {
  check_same_run(c);
  const TrainingState& s = c.state;
  record_ = RunRecord::of(s);
  known_base_ = s.base_checksum;
  resumed_after_ = s.step;
  saved_ = c.dir;
  note_start();
  if (finished()) {
    if (left_unfinished()) load_final();
    return;
  }
  require(fs::exists(c.dir / kOptimizerFile), Fault::usage,
          "resume: {} is a finished run of {} and has no optimizer state. To train it further, {}",
          c.dir.string(), count(s.step, "step"),
          folder_.how_to_train_further(c.dir, options_.lora.has_value()));
  warn_of_other_bits(c);
  if (options_.lora) verify_base();
  check_stop();
  load_and_compare();
  check_stop();
  const std::string steps = length_.counted(record_.step);
  log::say("resumed from {}: {} {} done", c.dir.string(), steps,
           steps.ends_with('s') ? "are" : "is");
}

void TrainingRun::load_final() {
  saved_ = folder_.final_model();
  if (options_.lora) verify_base();
  load_parameters(queue_, trainer_->params(), options_.lora ? inputs_.model.folder : saved_);
  if (options_.lora) load_adapter(queue_, trainer_->params(), saved_);
}

bool TrainingRun::has_all_steps() const {
  if (!complete() || record_.step > length_.steps()) return complete();
  return folder_.has_final(record_.step);
}

void TrainingRun::note_start() {
  start_ = team_.of_leader(
      Start{.finished = has_all_steps(),
            .left_unfinished =
                (record_.step == length_.steps() || out_of_patience()) && folder_.is_unfinished()});
}

void TrainingRun::verify_base() {
  if (team_.leads()) verify_if_ours(inputs_.model.folder);
  team_.sync();
}

// A run that ended for want of patience has all its steps, and no moments to train on with.
int64_t TrainingRun::enough_steps() const {
  std::error_code error;
  if (!recipe_.patience || !fs::exists(folder_.final_model() / kStateFile, error))
    return length_.steps();
  const TrainingState end = read_state(folder_.final_model());
  return end.validations_since >= *recipe_.patience ? std::min(end.step, length_.steps())
                                                    : length_.steps();
}

// The rank that leads finds and verifies the checkpoint; all read it.
std::optional<FoundCheckpoint> TrainingRun::find_resume() {
  std::optional<FoundCheckpoint> found;
  if (team_.leads()) found = folder_.find_resume(enough_steps());
  const fs::path dir = team_.share(found ? found->dir.string() : "");
  if (!team_.leads() && !dir.empty()) found = FoundCheckpoint{dir, read_state(dir)};
  return found;
}

// Before the first product of this process: later, OpenBLAS has its kernels.
void TrainingRun::choose_kernels(const std::string& computed_on) {
  if (options_.device == Device::cpu) {
    const cpu::BlasLibrary& blas = cpu::blas(kernels_in(computed_on));
    if (blas.chosen_by() == cpu::BlasLibrary::ChosenBy::record && !blas.faster().empty())
      log::info(
          "the run goes on with OpenBLAS's {} kernels, with which it began, so that its bits stay; "
          "{}'s are several times as fast: set OPENBLAS_CORETYPE={} to use them",
          blas.kernels(), blas.faster(), blas.faster());
  }
  identity_.machine = what_computes(options_.device, options_.mesh);
}

void TrainingRun::initialize() {
  const WorkBar bar("loading the model", team_.leads());
  const auto checkpoint = find_resume();
  choose_kernels(checkpoint ? checkpoint->state.computed_on.value_or("") : "");
  if (!checkpoint || folder_.resumes_by_name())
    folder_.check_sources_stay({inputs_.model.folder, inputs_.tokenizer_dir});
  if (checkpoint) return restore(*checkpoint);
  note_start();
  if (!inputs_.model.folder.empty()) verify_base();
  check_stop();
  load_and_compare();
  check_stop();
}

// Every rank has read files of its own, so what each of them has read is compared. A rank alone
// makes the checksum of a frozen base, for those that resume.
void TrainingRun::load_and_compare() {
  const bool frozen_base = options_.lora && !inputs_.model.folder.empty();
  if (team_.size() == 1 && !frozen_base) return load_state(queue_, *trainer_);
  ReadWeights read;
  load_state(queue_, *trainer_, &read);
  const auto compared = [&](const WeightSums& sums, const fs::path& folder) {
    std::vector<WeightSums::Sums> by_rank;
    for (const std::string& text : team_.exchange(sums.text()))
      by_rank.push_back(WeightSums::parse(text));
    const AllWeightSums all = compare_sums(by_rank);
    if (const auto& d = all.difference)
      fail(Fault::usage,
           "ranks differ in the model's weights: rank {} on {} has read other values of {} in {} "
           "than rank {} on {}; give all ranks the same files",
           d->rank, team_.hosts()[d->rank], d->tensor, folder.string(), d->other,
           team_.hosts()[d->other]);
    return all.checksum;
  };
  const std::optional<std::string> model = compared(read.model, inputs_.model.folder);
  if (resumed_after_) compared(read.checkpoint, saved_);
  if (!frozen_base) return;
  require(!known_base_ || !model || *known_base_ == *model, Fault::usage,
          "resume: {} was trained on other base weights than those now in {}. Resume with the "
          "original weights, or start a new run with another --out_dir",
          saved_.string(), inputs_.model.folder.string());
  identity_.base_checksum = model ? model : known_base_;
}

void TrainingRun::load_state(Queue& q, Trainer& trainer, ReadWeights* read) const {
  const auto seed = static_cast<uint64_t>(recipe_.seed);
  Parameters& params = trainer.params();
  WeightSums* const model = read != nullptr ? &read->model : nullptr;
  if (resumed_after_) {
    if (options_.lora) load_parameters(q, params, inputs_.model.folder, model);
    const TrainingState s = load_checkpoint(q, params, trainer.optimizer(), saved_,
                                            read != nullptr ? &read->checkpoint : nullptr);
    if (s.loss_scale) trainer.loss_scale().restore({*s.loss_scale, s.loss_scale_steps});
    return;
  }
  if (inputs_.model.folder.empty())
    params.initialize(q, seed);
  else
    load_parameters(q, params, inputs_.model.folder, model);
  if (options_.lora) params.initialize_adapters(q, seed);
}

}  // namespace capstan
