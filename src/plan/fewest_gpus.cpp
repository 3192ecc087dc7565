#include "plan/fewest_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "plan/fit.h"
#include "recipe/devices.h"

namespace capstan {
namespace {

constexpr int kAllNumbers = 32;  // machines up to which each number is tried

// A way to share the work, with a rough estimate of its memory that only serves to sort.
struct Layout {
  MeshChoice choice;
  double bytes = 0;
};

// A rough estimate of a rank's memory: its share of the state, the weights gathered for one block,
// the saved inputs of all blocks in flight, and the live activations of one block.
double rough_bytes(const TrainOptions& o) {
  const ModelConfig& c = o.model;
  const double width = static_cast<double>(size_of(types_of(o.precision).compute));
  const auto hidden = static_cast<double>(c.hidden);
  const double block =
      hidden * static_cast<double>(2 * c.q_width() + 2 * c.kv_width() + 3 * c.intermediate);
  const double tensor = o.mesh.tensor, stages = o.mesh.pipeline;
  const double tokens = static_cast<double>(o.limits.tokens) / (tensor * o.mesh.context);
  const double under_way = std::min<double>(stages, static_cast<double>(o.pipeline.micro_batches));
  double bytes = least_bytes(o);
  bytes += tokens * width * hidden * static_cast<double>(c.layers) / stages * under_way;
  bytes += tokens * width * (8 * hidden + 4 * static_cast<double>(c.intermediate));
  if (o.sharding.weights == Hold::shard)
    bytes += 2 * width * std::max(block, hidden * static_cast<double>(c.vocab)) / tensor;
  return bytes;
}

// The ways to share the work on these GPUs that may fit, by increasing estimate.
std::vector<Layout> layouts(const MeshQuestion& q) {
  const int ranks = q.devices * q.machines;
  std::vector<Layout> all;
  const auto add = [&](MeshChoice choice) {
    const int data = ranks / (choice.tensor * choice.context * choice.pipeline);
    if (data > q.recipe.global_batch_size) return;
    if (data * choice.context > 1) choice.strategy = Strategy::zero3;
    try {
      const TrainOptions o = options_with(q, choice);
      spec_of(o, o.ranks);  // the model may not be cut so often
      if (least_bytes(o) <= static_cast<double>(q.available.device))
        all.push_back({choice, rough_bytes(o)});
    } catch (const Error& e) {
      if (e.fault() != Fault::usage) throw;  // a run would refuse that mesh, too
    }
  };
  const int64_t most = std::min<int64_t>(kMostRanks, q.options.model.layers);  // stages
  for (int tensor = 1; tensor <= q.devices; tensor *= 2)
    for (int context = 1; context <= kMostRanks && tensor * context <= ranks; context *= 2) {
      if (q.devices % tensor != 0 || ranks % (tensor * context) != 0) continue;
      const int rest = ranks / (tensor * context);
      for (int stages = 1; stages <= std::min<int64_t>(rest, most); ++stages)
        if (rest % stages == 0)
          add({.tensor = tensor,
               .context = context,
               .pipeline = stages,
               .recompute = Recompute::block});
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const Layout& a, const Layout& b) { return a.bytes < b.bytes; });
  return all;
}

// Plans the few layouts with the smallest estimates and returns the first that fits.
std::optional<MeshPlan> mesh_that_fits(const MeshQuestion& q) {
  constexpr size_t kTried = 6;
  std::vector<Layout> all = layouts(q);
  all.resize(std::min(all.size(), kTried));
  for (const Layout& c : all) {
    try {
      const TrainOptions options = options_with(q, c.choice);
      if (!stages_fit(options, q.available)) continue;
      const Fit fit = judge(options, q.available);
      if (!fit.fits()) continue;
      return MeshPlan{.choice = c.choice,
                      .options = fit.options,
                      .data_ranks = batch_ranks(fit.options.ranks, fit.options.mesh).size,
                      .micro_batches = fit.options.pipeline.micro_batches,
                      .bytes = bytes_of(fit.needs).most};
    } catch (const Error& e) {
      if (e.fault() != Fault::usage) throw;
    }
  }
  return std::nullopt;
}

MeshQuestion question_of(const PlannedTask& task, const Machines& m) {
  MeshQuestion q{.recipe = task.recipe,
                 .options = task.options,
                 .devices = m.devices,
                 .machines = m.count,
                 .network = m.network.value_or(Network()),
                 .calibration = m.calibration.value_or(Calibration()),
                 .available = m.available};
  q.recipe.devices = {.count = m.devices};
  q.recipe.num_nodes = m.count;
  q.network.room = m.count > 1;
  return q;
}

// Replaces the plan by the fastest mesh on these machines, if times are known.
void take_fastest(MeshPlan& plan, const MeshQuestion& q, const Machines& m) {
  if (!m.calibration || (m.ranks() > 1 && !m.network)) return;
  if (!m.calibration->types.contains(type_of_products(plan.options))) return;
  MeshSearch found = search_meshes(q, 1);
  if (!found.best.empty()) {
    plan = std::move(found.best[0]);
    return;
  }
  plan.step = estimate_largest(connected(plan.options, m.network),
                               cost_model(*m.calibration, plan.options), plan.micro_batches);
}

std::string keys_of(const GpuCount& count, const Recipe& recipe) {
  std::vector<std::string> all = {named_gpus(count.machines.devices, count.machines.count)};
  MeshPlan as_asked = count.plan;
  const MeshChoice& c = count.plan.choice;
  const auto add = [&](bool differs, const char* key) {
    if (!differs) return;
    for (const auto& [name, value] : as_asked.keys())
      if (name == key) all.push_back(fmt::format("{}: {}", name, value));
  };
  add(c.tensor != recipe.tensor_parallel, "tensor_parallel");
  add(c.overlap, "tensor_parallel_overlap");
  add(c.context != recipe.context_parallel, "context_parallel");
  add(c.pipeline != recipe.pipeline_parallel, "pipeline_parallel");
  add(c.pipeline > 1 && c.schedule != recipe.pipeline_schedule, "pipeline_schedule");
  add(c.strategy != recipe.strategy.kind && c.strategy != Strategy::automatic, "strategy");
  add(c.micro_batch_size != recipe.micro_batch_size.size, "train.micro_batch_size");
  add(recipe.activations != Activations{.policy = c.recompute}, "activations");
  return fmt::format("{}", fmt::join(all, " with "));
}

}  // namespace

std::optional<GpuCount> fewest_gpus(
    const PlannedTask& task, int per_machine, int most,
    const std::function<Machines(int devices, int count)>& machines) {
  const auto attempt = [&](int devices, int count) -> std::optional<GpuCount> {
    const Machines m = machines(devices, count);
    const MeshQuestion q = question_of(task, m);
    auto plan = mesh_that_fits(q);
    if (!plan) return std::nullopt;
    take_fastest(*plan, q, m);
    GpuCount found{m, std::move(*plan), ""};
    found.what = keys_of(found, task.recipe);
    return found;
  };
  for (int devices = 1; devices < per_machine && devices <= most; devices *= 2)
    if (auto found = attempt(devices, 1)) return found;
  for (int count = 1; count * per_machine <= most; count += 1 + count / (kAllNumbers + 1))
    if (auto found = attempt(per_machine, count)) return found;
  return std::nullopt;
}

}  // namespace capstan
