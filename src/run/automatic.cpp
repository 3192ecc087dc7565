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

// Where the record of the run that is resumed may be, the newest checkpoint first.
std::vector<fs::path> records_of(const Recipe& recipe) {
  if (recipe.resume.mode == Resume::Mode::off) return {};
  if (recipe.resume.mode == Resume::Mode::folder) return {recipe.resume.folder};
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(recipe.out_dir, error))
    if (is_checkpoint_name(entry.path().filename().string())) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    return a.filename().string() > b.filename().string();
  });
  return folders;
}

// The recipe that it was made with; none: it is not known. Whether a checkpoint is damaged is
// judged when it is resumed.
std::optional<Recipe> recorded(const Recipe& recipe, Task task) {
  std::error_code error;
  for (const fs::path& folder : records_of(recipe)) {
    const fs::path file = folder / "hyperparameters.yaml";
    if (!fs::exists(file, error)) continue;
    // Where a record does not say, products were of f32.
    Recipe defaults = recipe;
    defaults.matmul_precision = MatmulPrecision::highest;
    try {
      RecipeInput input(task, defaults);
      input.read_file(file);
      return input.finish();
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

// Whether the products of this rank would be in TF32.
bool may_use_tf32(const Recipe& recipe, Task task, const RunInputs& inputs) {
  Recipe open = recipe;
  open.matmul_precision.reset();
  open.use_one_rank();
  return uses_tf32(train_options(open, task, inputs.model.config));
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

// The products of 32-true: as in the checkpoint, else in TF32 if the GPUs of all ranks have it.
MatmulPrecision settle_products(const Recipe& recipe, Task task, const RunInputs& inputs,
                                const Communicator& group) {
  struct Told {
    int can = 0, recorded = 0, high = 0;
  } told{.can = may_use_tf32(recipe, task, inputs) ? 1 : 0};
  const bool resumes = recipe.resume.mode != Resume::Mode::off;
  if (!resumes && device_of(recipe.accelerator) != Device::cuda) return MatmulPrecision::highest;
  Team team(group);
  const auto all = team.gather(told);
  told.high = std::all_of(all.begin(), all.end(), [](const Told& t) { return t.can == 1; }) ? 1 : 0;
  if (team.leads() && resumes)
    if (const auto before = recorded(recipe, task); before && before->matmul_precision) {
      told.recorded = 1;
      told.high = before->matmul_precision == MatmulPrecision::high ? 1 : 0;
    }
  told = team.of_leader(told);
  const auto products = told.high == 1 ? MatmulPrecision::high : MatmulPrecision::highest;
  if (told.can == 1)
    log::say("matmul_precision: {}, {}", name_of(products),
             told.recorded == 1 ? "as in the checkpoint"
                                : "for 32-true multiplies in TF32 on a GPU, as LitGPT does");
  return products;
}

Recipe settle_batch_and_strategy(const Recipe& recipe, Task task, const RunInputs& inputs,
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
    const auto before = batch ? recorded(recipe, task) : std::nullopt;
    Recipe asked = recipe;
    if (before) asked.micro_batch_size = before->micro_batch_size.size;
    told.recorded = before ? 1 : 0;
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

}  // namespace

Recipe resolve_automatic(const Recipe& recipe, Task task, const RunInputs& inputs,
                         const Communicator& group) {
  Recipe resolved = recipe;
  if (!recipe.matmul_precision && find_option("matmul_precision").used_by(task))
    resolved.matmul_precision = settle_products(recipe, task, inputs, group);
  return settle_batch_and_strategy(resolved, task, inputs, group);
}

}  // namespace capstan
