// How a run is saved, found again and gone on with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "recipe/recipe_yaml.h"
#include "run/run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint_name(const std::string& name) {
  return name == "final" || (name.starts_with("step-") && name.size() > 5 &&
                             name.find_first_not_of("0123456789", 5) == std::string::npos);
}

// The lines of a new text that an old one does not have.
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
  // How a run was started is no part of what it computes.
  Recipe r = recipe_;
  r.resume = {};
  return recipe_yaml(r, task_);
}

TrainingState TrainingRun::state() const {
  return {.step = step_,
          .seed = static_cast<uint64_t>(recipe_.seed),
          .epoch = static_cast<double>(step_) / static_cast<double>(length_.steps_per_epoch()),
          .samples = length_.samples_in(step_),
          .tokens = tokens_,
          .padding = padding_,
          .targets = targets_,
          .seconds = seconds_,
          .eval_seconds = eval_seconds_,
          .save_seconds = save_seconds_,
          .started = std::chrono::system_clock::to_time_t(started_),
          .dataset_samples = inputs_.data.train.size(),
          .dataset_fingerprint = fingerprint_,
          .base_fingerprint = base_fingerprint_,
          .computed_on = computed_on_,
          .first_loss = first_loss_,
          .last_loss = last_loss_,
          .val_loss = val_loss_,
          .recipe = settings()};
}

fs::path TrainingRun::step_folder() const {
  return fs::path(recipe_.out_dir) /
         fmt::format("step-{:0{}}", step_, task_ == Task::pretrain ? 8 : 6);
}

SaveRequest TrainingRun::save_request(const fs::path& dir, bool is_final) const {
  SaveRequest request;
  request.dir = dir;
  request.state = state();
  request.extras = extra_files(recipe_, task_, inputs_);
  request.moments = !is_final;
  // A checkpoint whose steps the metrics lack would leave a gap for good.
  if (metrics_) request.before_name = metrics_->sync_later();
  // As it was typed, if that is a path: PEFT looks nowhere else.
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
  saved_ = dir;
}

void TrainingRun::keep_state(const Error& why) {
  if (step_ == first_step_ || task_ == Task::demo) return;
  try {
    saver_->wait();
    if (saved_ != step_folder()) {
      SaveRequest request = save_request(step_folder(), false);
      request.keep = 0;  // the steps before may have gone astray: earlier checkpoints stay
      saver_->save(std::move(request));
      saved_ = step_folder();
    }
    saver_->wait();
  } catch (const std::exception&) {  // what is wrong already is the news
    return;
  }
  fail(why.fault(), "{}. The state after {} is in {}, and --resume auto goes on from it",
       why.what(), length_.counted(step_), saved_.string());
}

// Beside the checkpoints that stay there is one that is being written, or the final model.
void TrainingRun::warn_of_space() const {
  if (!recipe_.save_interval || !length_.limited()) return;
  const int64_t interval = *recipe_.save_interval;
  int64_t more = (length_.steps() - 1) / interval - step_ / interval;
  std::error_code error;
  if (recipe_.keep_last) {
    int64_t there = 0;  // some of which go as others come
    for (const auto& entry : fs::directory_iterator(recipe_.out_dir, error))
      there += resumed_ && is_checkpoint_name(entry.path().filename().string());
    more = std::min(more, std::max<int64_t>(0, *recipe_.keep_last - there));
  }
  const double bytes = static_cast<double>(saver_->bytes()) * static_cast<double>(more + 1);
  const fs::space_info space = fs::space(recipe_.out_dir, error);
  if (more < 1 || error || bytes <= static_cast<double>(space.available)) return;
  log::warn(
      "the checkpoints of this run may take {}, and {} has {} free; a smaller train.keep_last or a "
      "larger train.save_interval needs less",
      format_bytes(bytes), recipe_.out_dir, format_bytes(static_cast<double>(space.available)));
}

void TrainingRun::rehearse_save() {
  constexpr int64_t kQuick = int64_t{1} << 29;
  const bool several =
      (recipe_.save_interval && *recipe_.save_interval < length_.steps()) || recipe_.max_time;
  // One that goes on may have a checkpoint there that goes when the next has come.
  const bool replaces = resumed_ && resumes_here() && recipe_.keep_last;
  check_can_save(fs::path(recipe_.out_dir) / "final", saver_->bytes(),
                 several && !replaces ? 2 : 1);
  warn_of_space();
  SaveRequest request = save_request(fs::path(recipe_.out_dir) / ".rehearsal", false);
  request.keep = 0;
  request.max_bytes = kQuick;
  const fs::path rehearsal = request.dir;
  saver_->save(std::move(request));
  saver_->wait();
  remove_folder(rehearsal);
}

std::optional<FoundCheckpoint> TrainingRun::find_resume() const {
  if (recipe_.resume.mode == Resume::Mode::off) return std::nullopt;
  if (resumes_by_name()) {
    const fs::path dir = recipe_.resume.folder;
    require(fs::exists(dir), Fault::file,
            "resume: {} is not there; expected true, false, auto, or the folder of a checkpoint",
            dir.string());
    verify_checkpoint(dir);
    return FoundCheckpoint{dir, read_state(dir)};
  }
  const CheckpointSearch search = newest_checkpoint(recipe_.out_dir, length_.steps());
  for (const std::string& line : search.skipped) log::warn("damaged, passed over: {}", line);
  require(search.newest || recipe_.resume.mode == Resume::Mode::newest_if_any, Fault::file,
          "resume: {} has no complete checkpoint to go on from; --resume auto starts anew then",
          recipe_.out_dir);
  return search.newest;
}

void TrainingRun::check_same_run(const FoundCheckpoint& c) const {
  const TrainingState now = state();
  const auto same = [&](const char* what, const auto& then, const auto& given) {
    require(then == given, Fault::usage,
            "resume: {} was made with {} {}, and this run has {}. Resume with the same, or start "
            "anew with another --out_dir",
            c.dir.string(), what, then, given);
  };
  same("seed", c.state.seed, now.seed);
  same("a training set of", c.state.dataset_samples, now.dataset_samples);
  require(c.state.dataset_fingerprint == now.dataset_fingerprint, Fault::usage,
          "resume: {} was made with other data (or another tokenizer, prompt style or "
          "max_seq_length): the samples would not go on where they were. Resume with the same, or "
          "start anew with another --out_dir",
          c.dir.string());
  same("a place in the data of", c.state.samples, length_.samples_in(c.state.step));
  require(!c.state.base_fingerprint || c.state.base_fingerprint == now.base_fingerprint,
          Fault::usage,
          "resume: {} was made beside other weights than {} has now. Resume beside those, or start "
          "anew with another --out_dir",
          c.dir.string(), inputs_.model.folder.string());
  const auto changed = new_lines(c.state.recipe, now.recipe);
  if (!changed.empty())
    log::warn("resumed with other settings than before: {}", fmt::join(changed, " · "));
}

void TrainingRun::restore(const FoundCheckpoint& c) {
  check_same_run(c);
  const TrainingState& s = c.state;
  resumed_ = true;
  step_ = first_step_ = s.step;
  tokens_ = s.tokens;
  padding_ = s.padding;
  targets_ = s.targets;
  seconds_ = s.seconds;
  eval_seconds_ = s.eval_seconds;
  save_seconds_ = s.save_seconds;
  if (s.started > 0) started_ = std::chrono::system_clock::from_time_t(s.started);
  first_loss_ = s.first_loss;
  last_loss_ = s.last_loss;
  val_loss_ = s.val_loss;
  saved_ = c.dir;
  if (finished()) {
    if (left_unfinished()) load_final();
    return;
  }
  require(fs::exists(c.dir / kOptimizerFile), Fault::usage,
          "resume: {} is a finished run of {} and keeps no state of the optimizer. To train "
          "it further, {}",
          c.dir.string(), count(s.step, "step"), how_to_train_further(c.dir));
  if (s.computed_on.value_or(computed_on_) != computed_on_)
    log::warn(
        "{} was computed on {}, and the run goes on on {}: its bits may differ from those of a run "
        "that stayed there",
        c.dir.string(), *s.computed_on, computed_on_);
  if (options_.lora) {
    verify_if_ours(inputs_.model.folder);
    load_parameters(queue_, trainer_->params(), inputs_.model.folder);
  }
  load_checkpoint(queue_, trainer_->params(), trainer_->optimizer(), c.dir);
  const std::string steps = length_.counted(step_);
  log::say("resumed from {}: {} {} done", c.dir.string(), steps,
           steps.ends_with('s') ? "are" : "is");
}

bool TrainingRun::is_left_behind(const fs::path& dir) const {
  if (!is_checkpoint_name(dir.filename().string()) ||
      !(fs::exists(dir / "config.json") || is_adapter(dir)))
    return false;
  if (!resumed_ || !resumes_here()) return true;
  // What the newest was found behind is damaged, and stays to be looked at; but for a model alone,
  // which this run's would replace.
  if (!resumes_by_name() && dir.filename() != "final") return false;
  try {
    return read_state(dir).step > first_step_;
  } catch (const Error&) {  // whatever it is, this run's must not take its place
    return true;
  }
}

void TrainingRun::move_earlier_run() const {
  std::error_code error;
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(recipe_.out_dir, error))
    if (is_left_behind(entry.path())) earlier.push_back(entry.path());
  if (earlier.empty()) return;
  fs::path to;
  for (int n = 1; to.empty() || fs::exists(to); ++n)
    to = fs::path(recipe_.out_dir) / fmt::format("previous-{}", n);
  fs::create_directories(to);
  for (const fs::path& from : earlier) fs::rename(from, to / from.filename());
  log::say("checkpoints of an earlier run are in {} now", to.string());
}

// What a run reads until its end must not be what it moves away at its start.
void TrainingRun::check_sources_stay() const {
  if (task_ == Task::demo) return;
  std::error_code error;
  const fs::path out = fs::weakly_canonical(recipe_.out_dir, error);
  for (const fs::path& source : {inputs_.model.folder, inputs_.tokenizer_dir}) {
    const fs::path folder = fs::weakly_canonical(source, error);
    require(source.empty() || folder.parent_path() != out ||
                !is_checkpoint_name(folder.filename().string()),
            Fault::usage,
            "{} is in the run's own out_dir, where checkpoints of an earlier run are moved away. "
            "Give another --out_dir",
            source.string());
  }
}

bool TrainingRun::finished() const {
  if (!complete() || step_ > length_.steps()) return complete();
  const fs::path model = fs::path(recipe_.out_dir) / "final";
  try {
    if (!resumes_here() || read_state(model).step != step_) return false;
    verify_checkpoint(model);
    return true;
  } catch (const Error&) {  // it is not there, or damaged
    return false;
  }
}

bool TrainingRun::resumes_here() const {
  if (!resumes_by_name()) return true;
  fs::path from = fs::absolute(recipe_.resume.folder).lexically_normal();
  if (!from.has_filename()) from = from.parent_path();  // "folder/", and "."
  // By its name, or by what that links to.
  std::error_code error;
  const fs::path out = fs::weakly_canonical(recipe_.out_dir, error);
  return fs::weakly_canonical(from.parent_path(), error) == out ||
         fs::weakly_canonical(from, error).parent_path() == out;
}

bool TrainingRun::resumes_by_name() const {
  return recipe_.resume.mode == Resume::Mode::folder;
}

void TrainingRun::initialize() {
  const auto checkpoint = find_resume();
  if (!checkpoint || resumes_by_name()) check_sources_stay();
  if (checkpoint) return restore(*checkpoint);
  if (!inputs_.model.folder.empty()) verify_if_ours(inputs_.model.folder);
  if (inputs_.model.folder.empty())
    trainer_->params().initialize(queue_, static_cast<uint64_t>(recipe_.seed));
  else
    load_parameters(queue_, trainer_->params(), inputs_.model.folder);
  if (options_.lora)
    trainer_->params().initialize_adapters(queue_, static_cast<uint64_t>(recipe_.seed));
}

}  // namespace capstan
