#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/batch/step_batches.h"
#include "report/gpu_monitor.h"
#include "run/run_display.h"
#include "run/run_folder.h"
#include "run/run_record.h"
#include "run/stop_condition.h"
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
  bool complete() const { return record_.step >= length_.steps(); }
  // … and the final model is there, or more steps were done than this run would.
  bool finished() const;
  // Of a finished run of this out_dir: it ended before finish() did, and finish_rest() is due.
  bool left_unfinished() const {
    return record_.step == length_.steps() && folder_.is_unfinished();
  }

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
  int interrupted() const { return stop_.signal(); }  // 0: it was not
  int64_t steps() const { return record_.step; }      // done, with those before a resume

  // Ends train() after this step as a signal would, with the state saved.
  void stop_after(int64_t step) { stop_.stop_after(step); }

  // Mean loss over the first eval.max_iters micro-batches of the validation set, or over at most so
  // many; nothing without a validation set, or where none of their tokens counts.
  std::optional<double> validate() { return validate(recipe_.eval_max_iters); }
  std::optional<double> validate(int64_t most_micro_batches);

  // The final model, the last validation, the pictures and the report. A signal during the last
  // step, or while the model is written, ends it without the validation; interrupted() has it then.
  void finish();
  // What finish() does when the final model is there: all of it but that. Once: left_unfinished()
  // is false afterwards, unless a signal came.
  void finish_rest();
  const std::filesystem::path& saved() const { return saved_; }  // the last checkpoint
  std::filesystem::path report_file() const { return folder_.report(); }

  RunSummary summary() const;
  // The closing lines, and the tables of memory and ops.
  std::string report() const;

 private:
  // What decides the bits of a run beside its recipe: a resumed run compares.
  struct Identity {
    std::string data;                 // of the training samples
    std::optional<std::string> base;  // of the frozen weights that adapters are trained with
    std::string machine;              // what computes
  };
  // What was measured in this process alone.
  struct Measured {
    double flops = 0, seconds = 0, ops_seconds = 0;
    double first_step_seconds = 0;  // it touches memory and records graphs for all that follow
    std::vector<OpTotal> ops;
    std::string op_table;
  };
  struct Prediction {
    double step_seconds = 0;  // 0: there is none
    std::string calibration;
  };

  // Resuming and saving: run_state.cpp.
  void restore(const FoundCheckpoint& checkpoint);
  void check_same_run(const FoundCheckpoint& checkpoint) const;
  void load_final();
  SaveRequest save_request(const std::filesystem::path& dir, bool is_final) const;
  void save(const std::filesystem::path& dir, bool is_final);
  void rehearse_save();
  void warn_of_space() const;
  TrainingState state() const;
  std::string settings() const;

  // Where numbers are not finite: run_faults.cpp.
  // Saves the state between two steps, if it can, and throws again what it tells of.
  void keep_state(const Error& why);
  // After a step that was not finite: keeps the state if other samples show that its weights are
  // good, else names the newest checkpoint that is. Throws `why` with that.
  [[noreturn]] void end_not_finite(const Error& why, const MicroBatches& data);
  bool weights_are_good(const MicroBatches& except);
  void count_skipped(const StepResult& result, const MicroBatches& data);

  // The loop: run.cpp.
  MicroBatches micro_batches(const Dataset& dataset) const;
  void predict();
  void take_step(StepBatches& batches);
  void evaluate_and_show();
  std::string sample_text();
  // Its time is saving's, not the training's.
  template <class Body>
  void spend_on_saving(const Body& body);
  void measure_process(double earlier_seconds);
  int64_t first_step() const { return resumed_after_.value_or(0); }

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
  Identity identity_;

  RunFolder folder_;
  RunDisplay display_;
  StopCondition stop_;
  RunRecord record_;
  std::optional<int64_t> resumed_after_;  // the step of the checkpoint that was resumed
  std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();  // this process
  Measured measured_;
  Prediction prediction_;
  mutable std::optional<double> peak_;  // of matrix products, in FLOP/s, once it was measured
  std::filesystem::path saved_;
  std::filesystem::path good_;  // the last checkpoint whose weights gave a finite loss afterwards
  int64_t skipped_ = 0;         // steps in a row
};

}  // namespace capstan
