#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/plan_options.h"
#include "cli/planned.h"
#include "cli/recipe_arguments.h"
#include "plan/fit.h"
#include "plan/gpu_catalogue.h"
#include "plan/offers.h"

// A plan that is asked for, and the choice of a machine for it.
namespace capstan::cli {

// What is asked, and all that is known before it is answered.
struct Question {
  PlanOptions options;
  Arguments words;  // keys of the recipe
  Task task = Task::finetune_full;
  Recipe recipe;
  GivenKeys given;  // keys of the recipe that were given, and where
  // As asked for, whatever the GPU takes and what is settled for it.
  std::optional<Precision> asked_precision;
  MicroBatch asked_micro_batch;
  Strategy asked_strategy;
  std::optional<GpuModel> gpu;
  Planned planned;
  Wish wish;
  bool chose_machine = false;
};

// Plans for this GPU of the catalogue.
void take_named_gpu(Question& question, const GpuModel& gpu);

// The run, to be planned on other machines: in the precision that each of them takes.
PlannedTask task_to_rent(const Question& question);

// The run on the machines that can be rented. Throws Fault::usage if there is too little to know
// how long it takes, or if it is not to be on a GPU.
std::vector<RentedRun> offers_of(const Question& question);

// Takes the machine of the rented run that comes nearest to the wish. Throws Fault::does_not_fit if
// the run fits on none.
void choose_machine(Question& question, const std::vector<RentedRun>& offers);

// Settles what the recipe leaves to the program (plan/automatic.h), as a run on these machines
// would.
void settle_automatic(Question& question, const Machines& machines);

// The command that trains as planned on the chosen machine.
std::string run_command(const Question& question, const Fit& fit);

}  // namespace capstan::cli
