#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/stop_token.h"
#include "checkpoint/weight_sums.h"
#include "data/batch/step_batches.h"
#include "plan/calibration.h"
#include "plan/fit.h"
#include "report/gpu_monitor.h"
#include "run/run_display.h"
#include "run/run_folder.h"
#include "run/run_record.h"
#include "run/stop_condition.h"
#include "run/team.h"
#include "tensor/trace.h"
#include "train/setup.h"

namespace capstan {

// Everything that decides what a run of the recipe on these inputs computes and needs. TrainingRun
// plans from it, and so do commands that only plan.
TrainOptions run_options(const Recipe& recipe, Task task, const RunInputs& inputs);

using SharedInputs = std::shared_ptr<const RunInputs>;

// Who starts a run: the command line and the program version, for the report, and the wish to stop
// it.
struct Invocation {
  std::string command = {}, program = {};
  StopToken stop = {};
};

// One training run, from its inputs to a folder with the model, on one device or as one of the
// ranks of a group. All ranks make the same calls; rank 0 alone prints (the others are to be quiet:
// log::Quiet) and writes files.
//
//   TrainingRun run(recipe, task, find_inputs(recipe, task));   plans; throws if it does not fit
//   run.initialize();                                           weights, or the state to resume
//   run.verify();                                               minute zero
//   run.train();                                                the steps
//   run.finish();                                               final model, report
//
// out_dir gets step-NNNNNN every train.save_interval steps and when interrupted, final at the end,
// logs/, loss.svg and report.html. A checkpoint is written while the next step runs, and is
// complete before that step counts. A killed process therefore loses at most train.save_interval
// steps. When train() ends, what was predicted and measured is added to the user's history
// (plan/history.h).
class TrainingRun {
 public:
  // Ranks of one process may share the inputs.
  TrainingRun(const Recipe& recipe, Task task, SharedInputs inputs, Invocation invocation = {},
              const Communicator& group = {});
  TrainingRun(const Recipe& recipe, Task task, RunInputs inputs, Invocation invocation = {});

  const RunPlan& plan() const { return plan_; }
  const RunLength& length() const { return length_; }
  const RunInputs& inputs() const { return inputs_; }
  Trainer& trainer() { return *trainer_; }
  Queue& queue() { return queue_; }
  bool leads() const { return team_.leads(); }

  // Loads the state that the recipe's `resume` selects; otherwise the weights of the model's
  // folder, or random ones from the seed. Here and in verify(), a signal throws Stopped.
  void initialize();
  // The resumed run had already done every step …
  bool complete() const { return record_.step >= length_.steps() || out_of_patience(); }
  // … and the final model exists, or the run had done more steps than this one would.
  bool finished() const { return start_.finished; }
  // For a finished run in this out_dir: its process ended before finish() did, so finish_rest()
  // must be called.
  bool left_unfinished() const { return start_.left_unfinished; }

  // Checks before step 1 what would otherwise fail hours into the run: forward and backward of the
  // largest micro-batch, an evaluation, a finite loss, and writing a checkpoint. It writes and
  // removes one: a small one completely, of a large one the first 512 MiB of weights and moments,
  // while space for the whole is reserved briefly. Throws the failure. If the device has a
  // calibration, also predicts the time of a step for the report.
  void verify();

  // Runs the remaining steps, with progress, validations and checkpoints. A new run first moves
  // checkpoints of an earlier one in out_dir to out_dir/previous-N. A run that resumes a checkpoint
  // by name moves later checkpoints, or all if that checkpoint is not in out_dir; any other resumed
  // run moves a later final model.
  // Saves its state when train.max_time is over. A signal, of any rank's Invocation::stop, ends it
  // after the current step, with its state saved; interrupted() then returns the signal. Before the
  // first step of this process there is nothing to save. Throws Fault::usage for a
  // validation loss that is not finite; for a step with a loss or gradients that are not finite, or
  // for train.max_skipped such steps in a row; and for an update that made weights not finite. The
  // message names the newest checkpoint whose weights gave a finite loss.
  // A signal ends a validation, too; the resumed run makes it again.
  void train();
  int interrupted() const { return stop_.signal(); }  // 0: not interrupted
  int64_t steps() const { return record_.step; }      // done, including those before a resume
  bool trained() const { return record_.step > first_step(); }  // this process has done a step

  // Ends train() after this step as a signal would, with the state saved.
  void stop_after(int64_t step) { stop_.stop_after(step); }

  // Mean loss over the first eval.max_iters micro-batches of the validation set, or over at most
  // that many; none without a validation set, if they have no targets, or if a signal ended it.
  std::optional<double> validate() { return validate(recipe_.eval_max_iters); }
  std::optional<double> validate(int64_t most_micro_batches);

  // Writes the final model, runs the last validation, and writes the charts and the report. A
  // signal since the last step skips or ends the validation; interrupted() then returns it.
  void finish();
  // The part of finish() after the final model is written. Call once: left_unfinished() is false
  // afterwards, unless a signal came.
  void finish_rest();
  // If a signal interrupted it: what is not done yet, "the last validation is missing".
  const char* missing() const { return missing_; }
  const std::filesystem::path& saved() const { return saved_; }  // the last checkpoint
  std::filesystem::path report_file() const { return folder_.report(); }

  // For an error that another rank caused: this rank's own, if its save has failed; else that
  // error.
  std::exception_ptr cause_of(std::exception_ptr error);

  RunSummary summary() const;
  // The closing lines, and the tables of memory and ops.
  std::string report() const;

  // If train.patience ended the run, why, and where the best model is.
  std::optional<std::string> why_early() const;

 private:
  // How initialize() found the run, as the rank that leads sees it.
  struct Start {
    bool finished = false, left_unfinished = false;
  };
  // What decides the bits of a run besides its recipe; compared on resume.
  struct Identity {
    std::string data;                          // of the training samples
    std::optional<std::string> base;           // of the frozen weights under the adapters …
    std::optional<std::string> base_checksum;  // … once they were loaded
    std::string machine;                       // the compute device; from initialize() on
    std::string order_of_sums;                 // of gradients
  };
  // Measured in this process only.
  struct Measured {
    double flops = 0, seconds = 0, ops_seconds = 0;
    double waited_apart = 0;        // for others: before training, and beside it
    int64_t tokens = 0;             // of this rank, with padding
    double first_step_seconds = 0;  // slower: first touch of memory, graph capture
    std::vector<OpTotal> ops;
    std::string op_table;
    std::vector<RankUse> ranks;  // of all ranks
  };
  struct Prediction {
    double step_seconds = 0;  // 0: none
    std::string calibration;
    bool from_data_sheet = false;
  };

  // Resuming and saving: run_state.cpp.
  std::optional<FoundCheckpoint> find_resume();
  void choose_kernels(const std::string& computed_on);
  // The weights to begin with, or the state to go on from.
  struct ReadWeights {
    WeightSums model, checkpoint;
  };
  void load_state(Queue& q, Trainer& trainer, ReadWeights* read = nullptr) const;
  // The same for this run. Throws Fault::usage unless all ranks have read the same weights.
  void load_and_compare();
  void restore(const FoundCheckpoint& checkpoint);
  void verify_base();
  void check_same_run(const FoundCheckpoint& checkpoint) const;
  void warn_of_other_bits(const FoundCheckpoint& checkpoint) const;
  void load_final();
  SaveRequest save_request(const std::filesystem::path& dir, bool is_final) const;
  void save(const std::filesystem::path& dir, bool is_final);
  void verify_save();
  void warn_of_space() const;
  TrainingState state() const;
  std::string settings() const;

  // Values that are not finite: run_faults.cpp.
  // Saves the state between two steps, if possible, and rethrows `why` with the path.
  void keep_state(const Error& why);
  // Ends the run after a step that was not finite. Saves the state if other samples show that the
  // weights are good; otherwise names the newest good checkpoint. Throws `why` with that.
  [[noreturn]] void end_not_finite(const Error& why, const MicroBatches& data);
  bool weights_are_good(const MicroBatches& except);
  void count_skipped(const StepResult& result, const MicroBatches& data);

  // The loop: run.cpp.
  RunPlan make_plan();
  void agree_on(Fit& fit, const Ranks& mine);
  int64_t measure_context();
  void require_same_run();
  bool has_all_steps() const;
  void note_start();
  // Agrees with the other ranks on whether a signal has come.
  int agreed_signal();
  // The same before training: all ranks throw Stopped together.
  void check_stop();
  StepResult of_all_ranks(const StepResult& mine, const MicroBatches& data);
  void gather_ranks();
  size_t devices_used() const;
  BytesOnGpu memory_on_gpu() const;
  double waited() const { return trainer_->params().waited() + team_.waited(); }
  void wait_for_save();
  StopAsked stop_asked() const {
    return [stop = invocation_.stop] { return stop.requested(); };
  }
  // The recipe's, or all samples if they are fewer.
  int64_t micro_batch_for(const Dataset& dataset) const;
  MicroBatches micro_batches(const Dataset& dataset) const;
  int64_t micro_batches_of_a_step() const;  // of all ranks
  void predict();
  // What `capstan bench` measured of this machine, if it has all that the options need; they get
  // the network.
  std::optional<Calibration> measured(TrainOptions& options) const;
  void choose_overlap(const Room& room);
  void self_check();
  StepBatches step_batches(const Ranks& ranks, const Recipe& recipe) const;
  // As the record says, of this process or of an earlier one.
  bool out_of_patience() const {
    return recipe_.patience && record_.validations_since >= *recipe_.patience;
  }
  int64_t enough_steps() const;
  void judge_validation();
  void take_step(StepBatches& batches);
  // A validation, and a sample if there is one.
  void evaluate_and_show();
  void make_missed_validation();
  // Whether a validation follows this step.
  bool validates_after(int64_t step) const;
  // The final validation may be of more samples: to be compared, the last step has one of its own.
  bool compares() const { return recipe_.keep_best || recipe_.patience; }

  // The timeline of one step, of the rank that leads: run_trace.cpp.
  void require_traceable() const;
  void begin_trace();
  void end_trace();
  void write_step_trace();
  void warn_of_no_trace() const;

  // None if a signal ended it.
  std::optional<std::string> sample_text();
  // Neither the time of `body` nor what this rank waits for others meanwhile counts as training.
  // Returns the seconds. On a GPU, waits until it has done what it was given before.
  template <class Body>
  double beside_training(const Body& body);
  template <class Body>
  void spend_on_saving(const Body& body);
  // The same, apart from training. Returns false if a signal ended it: then there is no result.
  bool spend_on_evaluation();
  void measure_process(double earlier_seconds);
  // Of this process: the mean, without the first one if there are several.
  double step_seconds() const;
  void append_to_history() const;
  int64_t first_step() const { return resumed_after_.value_or(0); }

  Recipe recipe_;
  Task task_;
  SharedInputs shared_inputs_;
  const RunInputs& inputs_;
  Invocation invocation_;
  mutable Team team_;
  RunLength length_;
  std::optional<ExamplePrompt> example_;  // prompt for generated samples
  TrainOptions options_;
  GpuMonitor gpu_;  // constructed before the first use of the GPU
  RunPlan plan_;
  int64_t context_bytes_;  // of this process on its GPU, before any rank allocates its plan
  Arena arena_, host_;
  Queue queue_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CheckpointSaver> saver_;
  Identity identity_;
  Start start_;

  RunFolder folder_;
  RunDisplay display_;
  StopCondition stop_;
  RunRecord record_;
  std::optional<int64_t> resumed_after_;   // the step of the checkpoint that was resumed
  std::optional<std::string> known_base_;  // the checksum of the frozen base, as it says
  std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();  // this process
  Measured measured_;
  Prediction prediction_;
  mutable std::optional<double> peak_;  // of matrix products, in FLOP/s; measured on first use
  std::filesystem::path saved_;
  std::filesystem::path good_;  // the last checkpoint whose weights gave a finite loss afterwards
  int64_t skipped_ = 0;         // steps in a row
  bool missed_ = false;         // the last validation was ended by a signal
  bool saving_ = false;         // a save has begun that was not waited for
  const char* missing_ = "the last validation is missing";

  std::unique_ptr<Trace> trace_;  // of the step that runs
  bool traced_ = false;           // one was
};

}  // namespace capstan
