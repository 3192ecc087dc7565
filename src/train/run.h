#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/sampler.h"
#include "recipe/recipe.h"
#include "train/trainer.h"

namespace capstan {

// What a recipe makes of a model: the options of its trainer, without the batch limits.
TrainOptions train_options(const Recipe& recipe, const ModelConfig& model);

// Checks what no single key shows: the global batch is a whole number of micro-batches, and the
// learning rate decays to no more than its peak. Throws Fault::usage with all that is wrong, one
// per line, and what would be right.
void check_recipe(const Recipe& recipe);

// One training run on the CPU, from datasets to a folder with the model: plan, check, train,
// report.
class TrainingRun {
 public:
  // Makes the plan, refuses what does not fit, takes the memory. `sample_positions`: room to
  // generate text with the model. An empty validation set is allowed.
  TrainingRun(const Recipe& recipe, const ModelConfig& model, Dataset train, Dataset validation,
              int64_t sample_positions);

  const MemoryPlan& plan() const { return plan_; }
  Trainer& trainer() { return *trainer_; }
  Queue& queue() { return queue_; }

  // Random weights by the recipe's seed, or those of initial_checkpoint_dir.
  void initialize();
  // All steps, with progress on stderr and a validation every eval.interval steps and at the end.
  // SIGINT and SIGTERM end it after the step that is running; interrupted() has the signal then.
  // Throws Fault::usage if the last validation is not finite: such a model is not worth saving.
  void train();
  int interrupted() const { return signal_; }  // 0: it was not
  int64_t steps() const { return steps_; }     // done
  // Mean loss over the first eval.max_iters micro-batches of the validation set.
  double validate();
  // The model as a Hugging Face folder with the byte-level tokenizer and the recipe.
  void save(const std::filesystem::path& dir);
  // Throws what save would for a folder that cannot be made or a full disk (Fault::file): to be
  // known before the training, not after.
  void check_save(const std::filesystem::path& dir);

  // Time, tokens per second, memory, ops.
  std::string report() const;

 private:
  static TrainOptions with_limits(const Recipe& recipe, const ModelConfig& model,
                                  const Dataset& train, const Dataset& validation,
                                  int64_t sample_positions);
  MicroBatches micro_batches(const Dataset& dataset) const;

  Recipe recipe_;
  Dataset train_, validation_;
  TrainOptions options_;
  MemoryPlan plan_;
  Arena arena_;
  Queue queue_;
  std::unique_ptr<Trainer> trainer_;

  int signal_ = 0;
  int64_t steps_ = 0;
  std::string ops_;  // the table of ops at the end of the training
  double seconds_ = 0;
  int64_t tokens_ = 0, targets_ = 0;
  double first_loss_ = 0, last_loss_ = 0, val_loss_ = -1;
};

}  // namespace capstan
