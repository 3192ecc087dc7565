#include "run/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/find.h"
#include "plan/automatic.h"
#include "recipe/recipe_input.h"
#include "run/run.h"
#include "run/team.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// The last checkpoint of the run that is resumed; empty: it begins.
fs::path resumed_folder(const Recipe& recipe) {
  if (recipe.resume.mode == Resume::Mode::off) return {};
  if (recipe.resume.mode == Resume::Mode::folder) return recipe.resume.folder;
  fs::path last;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(recipe.out_dir, error)) {
    const std::string name = entry.path().filename();
    if (is_checkpoint_name(name) && (last.empty() || name > last.filename().string()) &&
        fs::exists(entry.path() / "hyperparameters.yaml", error))
      last = entry.path();
  }
  return last;
}

// What that checkpoint was made with; 0: it is not known.
int64_t recorded(const Recipe& recipe, Task task) {
  const fs::path file = resumed_folder(recipe) / "hyperparameters.yaml";
  std::error_code error;
  if (!file.has_parent_path() || !fs::exists(file, error)) return 0;
  RecipeInput input(task, recipe);
  input.read_file(file);
  return input.finish().micro_batch_size.size;
}

// The calibration of this machine, if it suits the run, with what connects the ranks.
Machines machines_of(const Recipe& recipe, Task task, const RunInputs& inputs, Team& team) {
  const TrainOptions o = run_options(recipe, task, inputs);
  Machines m{.devices = team.size() / team.machines(), .count = team.machines()};
  m.available = team.room_for(o.device);
  if (!team.leads()) return m;
  m.calibration = find_calibration(o.device);
  if (m.calibration && !m.calibration->types.contains(type_of_products(o))) m.calibration.reset();
  if (m.calibration && team.size() > 1)
    m.network = network_of(*m.calibration, team.size(), team.machines());
  if (team.size() > 1 && !m.network) m.calibration.reset();
  return m;
}

}  // namespace

Recipe resolve_automatic(const Recipe& recipe, Task task, const RunInputs& inputs,
                         const Communicator& group) {
  const bool batch = recipe.micro_batch_size.automatic;
  const bool strategy = strategy_is_open(recipe, group.size());
  if (!batch && !strategy) return recipe;
  Team team(group);
  const Machines machines = machines_of(recipe, task, inputs, team);
  struct Told {
    int64_t micro = 1;
    int kind = Strategy::automatic;
    int measured = 0, recorded = 0;
  } told;
  if (team.leads()) {
    const int64_t before = batch ? recorded(recipe, task) : 0;
    Recipe asked = recipe;
    if (before > 0) asked.micro_batch_size = before;
    told.recorded = before > 0 ? 1 : 0;
    told.measured = machines.calibration ? 1 : 0;
    const auto chosen = best_choice(asked, &inputs, machines,
                                    [&](const Recipe& r) { return run_options(r, task, inputs); });
    told.micro = chosen ? chosen->micro_batch_size : asked.micro_batch_size.size;
    if (chosen && strategy && machines.calibration) told.kind = chosen->strategy.kind;
  }
  told = team.of_leader(told);
  Recipe resolved = recipe;
  const char* const why =
      told.measured == 1 ? "the fastest by what was measured here" : "the largest that fits";
  if (batch) {
    resolved.micro_batch_size = told.micro;
    log::say("train.micro_batch_size: {}, {}", told.micro,
             told.recorded == 1 ? "as in the checkpoint" : why);
  }
  if (strategy && told.kind != Strategy::automatic) {
    resolved.strategy.kind = static_cast<Strategy::Kind>(told.kind);
    log::say("strategy: {}, {}", name_of(resolved.strategy), why);
  }
  return resolved;
}

}  // namespace capstan
