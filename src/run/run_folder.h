#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>

#include "checkpoint/find.h"
#include "recipe/resume.h"

namespace capstan {

// The folder of a run: which checkpoint it resumes, where it saves, and what of an earlier run it
// moves away.
//
//   out_dir/step-000400/   a checkpoint
//   out_dir/final/         the model at the end
//   out_dir/previous-1/    checkpoints of an earlier run
//   out_dir/logs/, loss.svg, report.html
class RunFolder {
 public:
  struct Options {
    std::filesystem::path out_dir;
    Resume resume;
    std::optional<int64_t> keep_last;  // checkpoints; none: all
    int step_digits = 6;               // in the names of checkpoints
    bool scratch = false;              // the demonstration's: replaced without asking
  };
  explicit RunFolder(Options options) : o_(std::move(options)) {}

  const std::filesystem::path& path() const { return o_.out_dir; }
  bool scratch() const { return o_.scratch; }
  std::filesystem::path checkpoint(int64_t step) const;
  std::filesystem::path final_model() const { return o_.out_dir / "final"; }
  std::filesystem::path report() const { return o_.out_dir / "report.html"; }
  std::filesystem::path curve() const { return o_.out_dir / "loss.svg"; }

  // The checkpoint to resume, verified; none where the run starts anew. Of out_dir's, the newest
  // with at most so many steps; damaged ones are passed over with a warning. Throws Fault::file.
  std::optional<FoundCheckpoint> find_resume(int64_t most_steps) const;
  // Whether `resume` names a folder, and whether what is resumed is in out_dir.
  bool resumes_by_name() const { return o_.resume.mode == Resume::Mode::folder; }
  bool resumes_here() const;

  // Before the first step: moves what an earlier run left to previous-N. A run that resumed moves
  // what is later than the step it resumed after.
  void move_earlier_run(std::optional<int64_t> resumed_after) const;
  // Throws Fault::usage where a folder that the run reads until its end would be moved so.
  void check_sources_stay(std::initializer_list<std::filesystem::path> sources) const;
  // A process that is killed between a save and the removal of what it replaces leaves one
  // checkpoint too many: removes it.
  void prune() const;
  int64_t checkpoints() const;  // that are there now, with the final model

  // Whether the final model of this step is there and whole.
  bool has_final(int64_t step) const;
  // A run is marked while its final model is there and its report is not. One without a report or
  // curve counts as marked.
  void mark_unfinished() const;
  void unmark() const;
  bool is_unfinished() const;

  // What to do to train a finished model further.
  std::string how_to_train_further(const std::filesystem::path& model, bool is_adapter) const;

 private:
  bool is_left_behind(const std::filesystem::path& dir, std::optional<int64_t> resumed_after) const;

  Options o_;
};

}  // namespace capstan
