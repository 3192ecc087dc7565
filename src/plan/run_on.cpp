#include "plan/run_on.h"

#include <algorithm>

#include "base/error.h"
#include "plan/data_sheet.h"
#include "plan/fit.h"

namespace capstan {
namespace {

RunThere fitted(const PlannedTask& task, TrainOptions options, const Machines& machines) {
  if (options.choose_overlap && machines.network && machines.calibration &&
      machines.calibration->types.contains(type_of_products(options)))
    options.mesh.overlap =
        overlap_pays(connected(options, machines.network),
                     cost_model(*machines.calibration, options), machines.available);
  options.staging = false;  // saving may always wait
  Fit fit = judge(options, machines.available);
  RunThere there{.options = std::move(fit.options),
                 .ranks = bytes_of(fit.needs),
                 .fits = fit.fits(),
                 .step = {}};
  if (there.fits) there.step = estimate(task, there.options, machines);
  return there;
}

// Some steps were simulated, and of several ranks what one has of them. The mean of all steps has
// more or fewer tokens; what is no update takes as much more or less time. Ranks that have unequal
// numbers of samples wait for each other: they keep the time of those that were simulated.
void take_mean_tokens(StepEstimate& step, const PlannedTask& task, const TrainOptions& options) {
  const Dataset& train = task.inputs->data.train;
  const int64_t global = samples_of_step(task);
  if (global % batch_ranks(options.ranks, options.mesh).size != 0 || step.tokens <= 0) return;
  double tokens = 0;
  for (int64_t i = 0; i < train.size(); ++i)
    tokens += static_cast<double>(train.inputs_of(i, task.inputs->max_seq_length));
  const int64_t steps = (train.size() - 1) / global + 1;
  const double factor = tokens / static_cast<double>(steps) / step.tokens;
  const double update = step.by_kind[static_cast<size_t>(OpKind::optimizer)];
  const double before = step.seconds;
  step.seconds = update + factor * (before - update);
  step.tokens *= factor;
  for (double& seconds : step.by_kind) seconds *= factor;
  step.by_kind[static_cast<size_t>(OpKind::optimizer)] = update;
  step.exposed *= factor * before / step.seconds;
  step.waiting *= factor * before / step.seconds;
}

// Whether `a` is rather to be taken.
bool better(const RunThere& a, const RunThere& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits || !a.step || !b.step) return a.ranks.most < b.ranks.most;
  return a.step->seconds < b.step->seconds;
}

std::vector<Strategy> strategies(const Recipe& recipe, int ranks) {
  if (recipe.strategy.kind != Strategy::automatic || ranks == 1) return {recipe.strategy};
  std::vector<Strategy> all;
  for (const auto kind : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    all.emplace_back(kind, recipe.strategy.offload);
  return all;
}

// The run's options with each of its strategies. None if the mesh does not divide the ranks.
std::vector<TrainOptions> ways_to_share(const PlannedTask& task, const Machines& machines) {
  std::vector<TrainOptions> all;
  for (const Strategy strategy : strategies(task.recipe, machines.ranks())) {
    Recipe recipe = task.recipe;
    recipe.strategy = strategy;
    recipe.num_nodes = machines.count;
    TrainOptions options = task.options;
    try {
      set_ranks(options, recipe, {0, machines.ranks()}, {.room = machines.count > 1},
                machines.count);
      all.push_back(std::move(options));
    } catch (const Error& e) {
      if (e.fault() != Fault::usage) throw;
    }
  }
  return all;
}

// Drops the options that cannot fit by formula. If none can, keeps the one that needs least.
std::vector<TrainOptions> that_may_fit(std::vector<TrainOptions> all, const Machines& machines) {
  const auto less = [](const auto& a, const auto& b) { return least_bytes(a) < least_bytes(b); };
  const auto least = std::min_element(all.begin(), all.end(), less);
  if (least == all.end()) return all;
  const auto available = static_cast<double>(machines.available.device);
  if (least_bytes(*least) > available) return {*least};
  std::erase_if(all, [&](const TrainOptions& o) { return least_bytes(o) > available; });
  return all;
}

}  // namespace

Machines machines_with(const GpuModel& gpu, int devices, int count, const Stated& stated) {
  const Stated known = stated.gpu == gpu.id ? stated : Stated();
  const auto placed = gpu.placed(devices, count);
  devices = static_cast<int>(placed.first);
  count = static_cast<int>(placed.second);
  Machines m{.devices = devices, .count = count};
  m.available.device = known.bytes.value_or(gpu.bytes - left_to_cuda());
  if (known.host_bytes) m.available.host = *known.host_bytes / devices;
  m.calibration = known.calibration ? *known.calibration : calibration_of(gpu, m.ranks());
  m.network = links_of(gpu, *m.calibration, devices, count, known.across);
  return m;
}

Network links_of(const GpuModel& gpu, const Calibration& calibration, int devices, int machines,
                 std::optional<double> across) {
  if (!across)
    if (const auto measured = network_of(calibration, devices * machines, machines))
      return *measured;
  // A link of a rack joins its machines, unless the user says what joins them.
  const int ranks = devices * machines;
  int joined = devices;
  if (!across && gpu.joins_machines() && machines > 1)
    for (int on = devices; on <= std::min(ranks, gpu.bridged); on += devices)
      if (ranks % on == 0) joined = on;
  Network network = data_sheet_network(gpu, joined, across);
  if (machines > 1 && joined == ranks)
    network.across = {network.seconds_per_message, network.bytes_per_second};
  if (const auto within = network_of(calibration, devices, 1)) {
    network.seconds_per_message = within->seconds_per_message;
    network.bytes_per_second = within->bytes_per_second;
  }
  return network;
}

TrainOptions on_gpu(const PlannedTask& task, const GpuModel& gpu) {
  TrainOptions options = task.options;
  options.device = Device::cuda;
  options.has_bf16 = computes_bf16(gpu.capability);
  options.precision = task.recipe.precision.value_or(Precision::bf16_mixed);
  if (!options.has_bf16) options.precision = with_f16(options.precision);
  return options;
}

TrainOptions connected(TrainOptions options, const std::optional<Network>& network) {
  if (options.ranks.size == 1) return options;
  const bool room = options.network.room;
  options.network = *network;
  options.network.room = room;
  return options;
}

int64_t micro_batches_of(const Recipe& recipe, const TrainOptions& options) {
  const int64_t micro = std::min(recipe.micro_batch_size.size, recipe.global_batch_size) *
                        batch_ranks(options.ranks, options.mesh).size;
  return (recipe.global_batch_size - 1) / micro + 1;
}

int64_t samples_of_step(const PlannedTask& task) {
  const int64_t all = task.recipe.global_batch_size;
  return task.inputs == nullptr ? all : std::min(all, task.inputs->data.train.size());
}

std::optional<StepEstimate> estimate(const PlannedTask& task, const TrainOptions& options,
                                     const Machines& machines) {
  if (!machines.calibration) return std::nullopt;
  if (!machines.calibration->types.contains(type_of_products(options))) return std::nullopt;
  if (options.ranks.size > 1 && !machines.network) return std::nullopt;
  const TrainOptions o = connected(options, machines.network);
  const CostModel model = cost_model(*machines.calibration, o);
  if (task.inputs == nullptr) return estimate_largest(o, model, micro_batches_of(task.recipe, o));
  StepEstimate step = estimate_run(o, model, task.recipe, *task.inputs, task.sampled_steps);
  take_mean_tokens(step, task, o);
  return step;
}

Strategy strategy_of(const TrainOptions& options) {
  const Sharding& s = options.sharding;
  if (s.replicas > 1) return {Strategy::hybrid, s.offload};
  if (s.weights == Hold::shard) return {Strategy::zero3, s.offload};
  if (s.gradients == Hold::shard) return {Strategy::zero2, s.offload};
  return {s.state == Hold::shard ? Strategy::zero1 : Strategy::ddp, s.offload};
}

double least_bytes(const TrainOptions& o) {
  const auto parameters = static_cast<double>(make_spec(o.model).parameter_count());
  const double sharing = o.mesh.pipeline * o.mesh.tensor, all = o.ranks.size;
  const auto over = [&](Hold hold) { return parameters / (hold == Hold::shard ? all : sharing); };
  const PrecisionTypes t = types_of(o.precision);
  if (o.lora)
    return over(o.sharding.weights) *
           (o.quantize == Quantize::none ? static_cast<double>(size_of(t.compute)) : 0.5);
  double bytes = over(o.sharding.weights) * static_cast<double>(size_of(t.compute));
  if (!o.single_micro_batch)
    bytes += over(o.sharding.gradients) * static_cast<double>(size_of(t.grad));
  if (o.sharding.offload) return bytes;
  const double state = t.has_master() ? static_cast<double>(size_of(t.master)) : 0;
  const double moments = o.optimizer.paged ? 0
                         : o.optimizer.kind == OptimizerKind::adamw
                             ? 2.0 * static_cast<double>(size_of(t.state))
                         : o.optimizer.kind == OptimizerKind::adamw8bit ? 2.0
                                                                        : 0;
  return bytes + over(o.sharding.state) * (state + moments);
}

std::optional<RunThere> run_on(const PlannedTask& task, const Machines& machines) {
  constexpr int kTried = 2;
  std::optional<RunThere> best;
  int fitting = 0;
  for (const TrainOptions& options : that_may_fit(ways_to_share(task, machines), machines)) {
    try {
      RunThere there = fitted(task, options, machines);
      fitting += there.fits ? 1 : 0;
      if (!best || better(there, *best)) best = std::move(there);
    } catch (const Error& e) {
      if (e.fault() != Fault::usage) throw;  // some cannot be: a format whose blocks a split cuts
    }
    // Recomputing to fit may be slower than sharding to fit: then try the other strategies, too.
    const bool recomputes =
        task.options.recompute_to_fit && best && best->options.recompute != Recompute::none;
    if (fitting >= kTried && !recomputes) break;
  }
  return best;
}

}  // namespace capstan
