#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>

#include "checkpoint/find.h"
#include "recipe/recipe.h"
#include "recipe/resume.h"

namespace capstan {

// The folder of a run: which checkpoint it resumes, where it saves, and which files of an earlier
// run it moves.
//
//   out_dir/step-000400/   a checkpoint
//   out_dir/final/         the model at the end
//   out_dir/best/          the model with the lowest validation loss, with train.keep_best
//   out_dir/previous-1/    checkpoints of an earlier run
//   out_dir/logs/, loss.svg, report.html
class RunFolder {
 public:
  struct Options {
    std::filesystem::path out_dir;
    Resume resume;
    std::optional<int64_t> keep_last;  // number of checkpoints to keep; none: all
    int step_digits = 6;               // in the names of checkpoints
    bool scratch = false;              // the demo's own: overwritten without asking
  };
  explicit RunFolder(Options options) : o_(std::move(options)) {}

  const std::filesystem::path& path() const { return o_.out_dir; }
  bool scratch() const { return o_.scratch; }
  std::filesystem::path checkpoint(int64_t step) const;
  std::filesystem::path final_model() const { return o_.out_dir / "final"; }
  std::filesystem::path best() const { return o_.out_dir / "best"; }
  // What trackers keep of a run: the report, the curve and an adapter.
  std::vector<std::filesystem::path> small_results() const;
  std::filesystem::path report() const { return o_.out_dir / "report.html"; }
  std::filesystem::path curve() const { return o_.out_dir / "loss.svg"; }

  // The checkpoint to resume, verified; none for a new run. In out_dir it is
  // newest_checkpoint(out_dir, enough); skips damaged ones with a warning. Throws Fault::file.
  std::optional<FoundCheckpoint> find_resume(int64_t enough) const;
  // Whether `resume` names a folder, and whether the resumed checkpoint is in out_dir.
  bool resumes_by_name() const { return o_.resume.mode == Resume::Mode::folder; }
  bool resumes_here() const;

  // Throws Fault::usage if a file or folder of a name that the run will write is not a run's.
  void check_own() const;

  // Call before the first step: moves the checkpoints of an earlier run to previous-N. A resumed
  // run moves only those later than the step it resumed after.
  void move_earlier_run(std::optional<int64_t> resumed_after) const;
  // Throws Fault::usage if that would move a folder that the run reads until its end.
  void check_sources_stay(std::initializer_list<std::filesystem::path> sources) const;
  // Removes a surplus checkpoint, left by a process that was killed between a save and the removal
  // of an old one.
  void prune() const;
  int64_t checkpoints() const;  // number present now, including the final model

  // Whether the final model of this step exists and is intact.
  bool has_final(int64_t step) const;
  // A run is marked unfinished while it has a final model but no report. A missing report or curve
  // counts as a mark.
  void mark_unfinished() const;
  void unmark() const;
  bool is_unfinished() const;

  // Advice on how to train a finished model further.
  std::string how_to_train_further(const std::filesystem::path& model, bool is_adapter) const;

 private:
  bool is_left_behind(const std::filesystem::path& dir, std::optional<int64_t> resumed_after) const;

  Options o_;
};

// Throws Fault::usage, before the work, for what a run of the recipe would otherwise replace or
// stumble over at its end: a file that log.trace names and that is no timeline; in out_dir a
// report.html, loss.svg or folder of a checkpoint's name that no run wrote.
void check_outputs(const Recipe& recipe);

}  // namespace capstan
