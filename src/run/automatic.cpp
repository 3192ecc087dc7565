#include "run/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/find.h"
#include "checkpoint/training_state.h"
#include "machine/name.h"
#include "plan/automatic.h"
#include "recipe/recipe_input.h"
#include "run/fingerprint.h"
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

struct Recorded {
  fs::path folder;  // the checkpoint
  Recipe recipe;    // that it was made with
};

// None: it is not known. Whether a checkpoint is damaged is judged when it is resumed.
std::optional<Recorded> recorded(const Recipe& recipe, Task task) {
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
      return Recorded{folder, input.finish()};
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

// Names the order in which the recipe's ranks would add gradients (order_of_sums).
std::string order_there(const Recipe& recipe, Task task, const RunInputs& inputs,
                        const Machines& machines) {
  TrainOptions o = run_options(recipe, task, inputs);
  set_ranks(o, recipe, {0, machines.ranks()}, {.room = machines.count > 1}, machines.count);
  const int64_t samples = inputs.data.train.size();
  const int64_t micro = std::min(recipe.micro_batch_size.size, samples);
  return order_of_sums(o, (std::min(recipe.global_batch_size, samples) + micro - 1) / micro);
}

// The strategy with which a run keeps the bits of the checkpoint that it goes on from: devices are
// the same, and ranks add gradients in the same order. The recipe's own, if it is one of them, else
// the first that fits; none if there is none.
std::optional<Strategy::Kind> that_keeps_bits(const fs::path& folder, Recipe recipe, Task task,
                                              const RunInputs& inputs, const Machines& machines) {
  std::error_code error;
  if (!fs::exists(folder / kStateFile, error)) return std::nullopt;
  try {
    const TrainingState state = read_state(folder);
    const Device device = device_of(recipe.accelerator);
    // The kernels of a CPU are not chosen before the run begins.
    if (device == Device::cuda && state.computed_on != what_computes(device, mesh_of(recipe)))
      return std::nullopt;
    const Strategy own = recipe.strategy;
    for (const auto kind :
         {own.kind, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      recipe.strategy.kind = kind;
      if (state.order_of_sums != order_there(recipe, task, inputs, machines)) continue;
      if (kind == own.kind) return kind;
      const auto there = run_on({.recipe = recipe,
                                 .options = run_options(recipe, task, inputs),
                                 .inputs = &inputs,
                                 .sampled_steps = 1},
                                machines);
      if (there && there->fits) return kind;
    }
  } catch (const Error&) {
    // It is damaged: an earlier one will be resumed, or none.
  }
  return std::nullopt;
}

// The machines of the ranks, with the times that the leader knows.
Machines machines_of(const Recipe& recipe, const TrainOptions& o, Team& team) {
  Machines m{.devices = team.size() / team.machines(), .count = team.machines()};
  m.available = team.room_for(o.device);
  if (!team.leads()) return m;
  m.calibration = find_calibration(o.device);
  if (m.calibration && team.size() > 1)
    m.network = network_of(*m.calibration, team.size(), team.machines());
  return with_known_times(std::move(m), recipe, o,
                          o.device == Device::cuda ? machine_name(o.device) : "");
}

std::string why(const Machines& machines) {
  if (!machines.calibration) return "the largest that fits";
  if (all_measured(*machines.calibration, machines.ranks(), machines.count))
    return "the fastest by what was measured here";
  return fmt::format("the fastest by the data sheet of {}", machines.calibration->name);
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
    if (const auto before = recorded(recipe, task); before && before->recipe.matmul_precision) {
      told.recorded = 1;
      told.high = before->recipe.matmul_precision == MatmulPrecision::high ? 1 : 0;
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
  TrainOptions options = run_options(recipe, task, inputs);
  options.mesh = mesh_of(recipe);
  const Machines machines = machines_of(recipe, options, team);
  struct Told {
    int64_t micro = 1;
    int kind = Strategy::automatic;
    int recorded = 0, kept = 0;
  } told;
  std::string reason;
  if (team.leads()) {
    const auto before = recorded(recipe, task);
    Recipe asked = recipe;
    told.recorded = batch && before;
    if (told.recorded == 1) asked.micro_batch_size = before->recipe.micro_batch_size.size;
    const auto chosen = best_choice(asked, &inputs, machines,
                                    [&](const Recipe& r) { return run_options(r, task, inputs); });
    told.micro = chosen ? chosen->micro_batch_size : asked.micro_batch_size.size;
    if (chosen && strategy && machines.calibration) told.kind = chosen->strategy.kind;
    if (strategy && before) {
      asked.micro_batch_size = told.micro;
      asked.strategy.kind = static_cast<Strategy::Kind>(told.kind);
      const auto kind = that_keeps_bits(before->folder, asked, task, inputs, machines);
      told.kept = kind && *kind != told.kind;
      if (told.kept == 1) told.kind = *kind;
    }
    reason = why(machines);
  }
  told = team.of_leader(told);
  Recipe resolved = recipe;
  if (batch) {
    resolved.micro_batch_size = told.micro;
    log::say("train.micro_batch_size: {}, {}", told.micro,
             told.recorded == 1 ? "as in the checkpoint" : reason);
  }
  if (strategy && told.kind != Strategy::automatic) {
    resolved.strategy.kind = static_cast<Strategy::Kind>(told.kind);
    log::say("strategy: {}, {}", name_of(resolved.strategy),
             told.kept == 1 ? "so that the run keeps its bits" : reason);
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
