#include "run/run_folder.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/shell_words.h"
#include "checkpoint/adapter.h"
#include "checkpoint/manifest.h"
#include "checkpoint/training_checkpoint.h"
#include "report/curve.h"
#include "report/page.h"
#include "tensor/trace_file.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// What a new run in the folder moves away.
bool is_moved_name(const std::string& name) {
  return is_checkpoint_name(name) || name == "best";
}

bool is_step_folder(const fs::path& dir) {
  return dir.filename().string().starts_with("step-");
}

// The newest step-* folder with the optimizer state that a resume needs.
std::optional<FoundCheckpoint> newest_with_moments(const fs::path& out_dir) {
  std::optional<FoundCheckpoint> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    if (!is_step_folder(entry.path()) || !fs::exists(entry.path() / kOptimizerFile, error))
      continue;
    try {
      FoundCheckpoint c{entry.path(), read_state(entry.path())};
      if (newest && newest->state.step >= c.state.step) continue;
      verify_checkpoint(c.dir);
      newest = std::move(c);
    } catch (const Error&) {  // damaged: try the others
    }
  }
  return newest;
}

// Maybe a damaged one.
bool is_checkpoint(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / "config.json", error) || is_adapter(dir) ||
         fs::exists(dir / "training_state", error);
}

fs::path mark_in(const fs::path& out_dir) {
  return out_dir / ".capstan-unfinished";
}

}  // namespace

fs::path RunFolder::checkpoint(int64_t step) const {
  return o_.out_dir / fmt::format("step-{:0{}}", step, o_.step_digits);
}

std::optional<FoundCheckpoint> RunFolder::find_resume(int64_t enough) const {
  if (o_.resume.mode == Resume::Mode::off) return std::nullopt;
  if (resumes_by_name()) {
    const fs::path dir = o_.resume.folder;
    require(fs::exists(dir), Fault::file,
            "resume: {} does not exist; expected true, false, auto, or the folder of a checkpoint",
            dir.string());
    verify_checkpoint(dir);
    return FoundCheckpoint{dir, read_state(dir)};
  }
  const CheckpointSearch search = newest_checkpoint(o_.out_dir, enough);
  for (const std::string& line : search.skipped)
    log::warn("skipped a damaged checkpoint: {}", line);
  require(search.newest || o_.resume.mode == Resume::Mode::newest_if_any, Fault::file,
          "resume: {} has no complete checkpoint; --resume auto starts a new run if there is none",
          o_.out_dir.string());
  if (!search.newest && !search.skipped.empty())
    log::warn("every checkpoint in {} is damaged: a new run starts, and they are moved away",
              o_.out_dir.string());
  return search.newest;
}

bool RunFolder::resumes_here() const {
  if (!resumes_by_name()) return true;
  fs::path from = fs::absolute(o_.resume.folder).lexically_normal();
  if (!from.has_filename()) from = from.parent_path();  // "folder/", and "."
  // By its name, or by the target of its symbolic link.
  std::error_code error;
  const fs::path out = fs::weakly_canonical(o_.out_dir, error);
  return fs::weakly_canonical(from.parent_path(), error) == out ||
         fs::weakly_canonical(from, error).parent_path() == out;
}

bool RunFolder::is_left_behind(const fs::path& dir, std::optional<int64_t> resumed_after) const {
  if (!is_moved_name(dir.filename().string()) || !is_checkpoint(dir)) return false;
  if (!resumed_after || !resumes_here()) return true;
  // Checkpoints newer than the one found are damaged, and stay for inspection. A final model would
  // be overwritten by this run, so it moves.
  if (!resumes_by_name() && dir.filename() != "final") return false;
  try {
    return read_state(dir).step > *resumed_after;
  } catch (const Error&) {  // unreadable: this run must not overwrite it
    return true;
  }
}

void RunFolder::move_earlier_run(std::optional<int64_t> resumed_after) const {
  if (o_.scratch) return;
  std::error_code error;
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(o_.out_dir, error))
    if (is_left_behind(entry.path(), resumed_after)) earlier.push_back(entry.path());
  if (earlier.empty()) return;
  log::say("moved checkpoints of an earlier run to {}",
           move_to_previous(o_.out_dir, earlier).string());
}

void RunFolder::check_own() const {
  require_replaceable("out_dir", report(), {"a report", kReportBegin});
  require_replaceable("out_dir", curve(), {"a loss curve", kChartBegin});
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(o_.out_dir, error)) {
    const fs::path& path = entry.path();
    if (!is_moved_name(path.filename().string())) continue;
    const bool ours =
        entry.is_directory(error) && (fs::is_empty(path, error) || is_checkpoint(path));
    require(ours, Fault::usage,
            "out_dir: {} is no checkpoint, so it is not replaced; move it away, or give another "
            "--out_dir",
            path.string());
  }
}

void RunFolder::check_sources_stay(std::initializer_list<fs::path> sources) const {
  if (o_.scratch) return;
  std::error_code error;
  const fs::path out = fs::weakly_canonical(o_.out_dir, error);
  for (const fs::path& source : sources) {
    const fs::path folder = fs::weakly_canonical(source, error);
    require(
        source.empty() || folder.parent_path() != out || !is_moved_name(folder.filename().string()),
        Fault::usage,
        "{} is in the run's own out_dir, but the run moves earlier checkpoints out of it. Give "
        "another --out_dir",
        source.string());
  }
}

int64_t RunFolder::checkpoints() const {
  std::error_code error;
  int64_t there = 0;
  for (const auto& entry : fs::directory_iterator(o_.out_dir, error))
    there += is_checkpoint_name(entry.path().filename().string());
  return there;
}

// Reads the checkpoints only if there are too many.
void RunFolder::prune() const {
  if (!o_.keep_last || o_.scratch) return;
  std::error_code error;
  int64_t there = 0;
  for (const auto& entry : fs::directory_iterator(o_.out_dir, error))
    there += is_step_folder(entry.path());
  if (there > *o_.keep_last) keep_last(o_.out_dir, static_cast<int>(*o_.keep_last));
}

bool RunFolder::has_final(int64_t step) const {
  try {
    if (!resumes_here() || read_state(final_model()).step != step) return false;
    verify_checkpoint(final_model());
    return true;
  } catch (const Error&) {  // missing or damaged
    return false;
  }
}

void RunFolder::mark_unfinished() const {
  write_text(
      mark_in(o_.out_dir),
      "The last validation of this run or its report is not done, or not told to trackers.\n");
}

void RunFolder::unmark() const {
  std::error_code error;
  fs::remove(mark_in(o_.out_dir), error);
}

bool RunFolder::is_unfinished() const {
  if (o_.scratch || !resumes_here()) return false;
  std::error_code error;
  return fs::exists(mark_in(o_.out_dir), error) || !fs::exists(report(), error) ||
         !fs::exists(curve(), error);
}

std::vector<fs::path> RunFolder::small_results() const {
  std::vector<fs::path> files = {report(), curve()};
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    if (std::error_code error; fs::exists(final_model() / name, error))
      files.push_back(final_model() / name);
  return files;
}

std::string RunFolder::how_to_train_further(const fs::path& model, bool is_adapter) const {
  const fs::path folder = model.has_filename() ? model : model.parent_path();
  if (const auto found = newest_with_moments(folder.parent_path()))
    return fmt::format("--resume {} continues after its {} steps", in_shell(found->dir.string()),
                       found->state.step);
  if (is_adapter)
    return fmt::format(
        "merge it (capstan merge_lora {}) and start a new run from the merged model with another "
        "--out_dir",
        in_shell(model.string()));
  return "start a new run from that folder with another --out_dir";
}

void check_outputs(const Recipe& recipe) {
  if (recipe.log_trace) require_output("log.trace", *recipe.log_trace, kTraceOutput);
  RunFolder({.out_dir = recipe.out_dir, .resume = recipe.resume, .keep_last = {}}).check_own();
}

}  // namespace capstan
