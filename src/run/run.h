#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/find.h"
#include "data/batch/step_batches.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/summary.h"
#include "train/setup.h"

namespace capstan {

// All that decides what the run of a recipe on these inputs computes and needs: TrainingRun makes
// its plan from it, and so does who plans without running.
TrainOptions run_options(const Recipe& recipe, Task task, const RunInputs& inputs);

// What the user typed, and the version of the program that runs it: for the report.
struct Invocation {
  std::string command = {}, program = {};
};

// One training run on one device, from its inputs to a folder with the model:
//
//   TrainingRun run(recipe, task, find_inputs(recipe, task));   plans, refuses what does not fit
//   run.initialize();                                           weights, or the state to go on from
//   run.rehearse();                                             minute zero
//   run.train();                                                the steps
//   run.finish();                                               final model, report
//
// out_dir gets step-NNNNNN every train.save_interval steps and when interrupted, final at the end,
// logs/, loss.svg and report.html. A checkpoint is written while the next step runs and complete
// before that step counts, so that no end of the process, however sudden, loses more than
// train.save_interval steps.
class TrainingRun {
 public:
  TrainingRun(const Recipe& recipe, Task task, RunInputs inputs, Invocation invocation = {});

  const RunPlan& plan() const { return plan_; }
  const RunLength& length() const { return length_; }
  const RunInputs& inputs() const { return inputs_; }
  Trainer& trainer() { return *trainer_; }
  Queue& queue() { return queue_; }

  // The state that the recipe's `resume` names; else the weights of the model's folder, or random
  // ones by the seed.
  void initialize();
  // Every step was done already by the run that this one resumed …
  bool complete() const { return step_ >= length_.steps(); }
  // … and the final model is there, or more steps were done than this run would.
  bool finished() const;
  // Of a finished run of this out_dir: it ended before finish() did, and finish_rest() is due.
  bool left_unfinished() const;

  // Proves, before step 1, what would be sad to learn later: the largest micro-batch goes forward
  // and backward, an evaluation works, the loss is finite, and a checkpoint can be written. One is,
  // and removed again: all of a small one, of a large one the first 512 MiB of weights and moments,
  // while the space for all of it is taken for a moment. Throws what fails. Where the device has a
  // calibration, the time of a step is predicted, for the report.
  void rehearse();

  // The steps that are left. A run that starts anew first moves checkpoints of an earlier one in
  // out_dir to out_dir/previous-N; one that resumes a checkpoint by its name moves later ones, or
  // all if that is not in out_dir, and any other a later final model. Out
  // of train.max_time its state is saved, too. With progress, validations, checkpoints. Signals
  // (StopSignals) end it after the step that is running, and its state is saved; interrupted() has
  // the signal then. Throws Fault::usage if a validation is not finite, if loss or gradients of a
  // step are not, or of train.max_skipped in a row, and if an update made weights that are not: the
  // message names the newest checkpoint whose weights gave a finite loss.
  void train();
  int interrupted() const { return signal_; }  // 0: it was not
  int64_t steps() const { return step_; }      // done, with those before a resume

  // Ends train() after this step as a signal would, with the state saved.
  void stop_after(int64_t step) { stop_after_ = step; }

  // Mean loss over the first eval.max_iters micro-batches of the validation set; nothing without
  // one, or where none of their tokens counts.
  std::optional<double> validate();

  // The final model, the last validation, the pictures and the report. A signal during the last
  // step, or while the model is written, ends it without the validation; interrupted() has it then.
  void finish();
  // What finish() does when the final model is there: all of it but that. Once: left_unfinished()
  // is false afterwards, unless a signal came.
  void finish_rest();
  const std::filesystem::path& saved() const { return saved_; }  // the last checkpoint
  std::filesystem::path report_file() const {
    return std::filesystem::path(recipe_.out_dir) / "report.html";
  }

  RunSummary summary() const;
  // The closing lines, and the tables of memory and ops.
  std::string report() const;

 private:
  std::optional<FoundCheckpoint> find_resume() const;
  void restore(const FoundCheckpoint& checkpoint);
  void check_same_run(const FoundCheckpoint& checkpoint) const;
  void move_earlier_run() const;
  bool is_left_behind(const std::filesystem::path& dir) const;
  void check_sources_stay() const;
  bool resumes_by_name() const;
  bool resumes_here() const;  // from a checkpoint of this out_dir
  // Saves the state between two steps, if it can, and throws again what it tells of.
  void keep_state(const Error& why);
  // After a step that was not finite: keeps the state if other samples show that its weights are
  // good, else names the newest checkpoint that is. Throws `why` with that.
  [[noreturn]] void end_not_finite(const Error& why, const MicroBatches& data);
  bool weights_are_good(const MicroBatches& except);
  void count_skipped(const StepResult& result, const MicroBatches& data);

  MicroBatches micro_batches(const Dataset& dataset) const;
  void predict();
  void take_step(StepBatches& batches, Progress& progress);
  void after_step(const StepResult& result, double seconds, Progress& progress);
  bool is_logged(int64_t iterations, int64_t micro_batches) const;
  void evaluate_and_show(Progress& progress);
  std::string sample_text();

  std::filesystem::path unfinished_mark() const;
  void load_final();
  void prune_checkpoints() const;
  std::optional<double> last_validation() const;  // that finish_rest() made before it was ended
  std::string how_to_train_further(const std::filesystem::path& model) const;
  void write_report() const;
  std::filesystem::path step_folder() const;
  SaveRequest save_request(const std::filesystem::path& dir, bool is_final) const;
  void save(const std::filesystem::path& dir, bool is_final);
  void rehearse_save();
  void warn_of_space() const;
  // Its time is saving's, not the training's.
  template <class Body>
  void spend_on_saving(Progress& progress, const Body& body);
  TrainingState state() const;
  std::string settings() const;

  Recipe recipe_;
  Task task_;
  RunInputs inputs_;
  Invocation invocation_;
  RunLength length_;
  std::optional<ExamplePrompt> example_;  // what samples are made from
  TrainOptions options_;
  GpuMonitor gpu_;  // before the GPU is first used
  RunPlan plan_;
  int64_t context_bytes_ = gpu_.process_bytes();  // before the plan is allocated
  Arena arena_, host_;
  Queue queue_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::optional<MetricsLog> metrics_;
  std::string fingerprint_;                      // of the training samples
  std::optional<std::string> base_fingerprint_;  // of the frozen weights beside adapters
  std::string computed_on_;                      // what decides the bits beside all this

  int signal_ = 0, late_signal_ = 0;  // late: during the last step
  int64_t stop_after_ = INT64_MAX;
  bool out_of_time_ = false;
  int64_t step_ = 0, first_step_ = 0;  // first_step_: where this process began
  bool resumed_ = false;               // from a checkpoint, perhaps of step 0
  int64_t tokens_ = 0, padding_ = 0, targets_ = 0;
  double seconds_ = 0, eval_seconds_ = 0, save_seconds_ = 0;
  double flops_ = 0, ops_seconds_ = 0, here_seconds_ = 0;  // of this process's steps
  double first_seconds_ = 0;                               // of its first
  double predicted_seconds_ = 0;                           // of a step, where it can be told
  std::string calibration_;                                // that tells it
  std::vector<OpTotal> ops_;
  std::string op_table_;
  std::optional<double> first_loss_, last_loss_, val_loss_;
  std::vector<RunSummary::Sample> samples_;
  std::filesystem::path saved_;
  std::filesystem::path good_;  // the last whose weights gave a finite loss afterwards
  int64_t skipped_ = 0;         // steps in a row
  std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();  // this process
  std::chrono::system_clock::time_point started_ = began_;  // the first part
};

}  // namespace capstan
