#include "plan/mesh_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "plan/alike.h"
#include "plan/run_on.h"
#include "recipe/devices.h"
#include "train/balance.h"

namespace capstan {
namespace {

constexpr int64_t kLong = 8192;  // tokens of samples that ranks may share
constexpr Recompute kPolicies[] = {Recompute::none, Recompute::selective, Recompute::block};

PipelineChoice schedule(PipelineChoice::Kind kind, int64_t chunks = 1) {
  PipelineChoice choice;
  choice.kind = kind;
  choice.chunks = chunks;
  return choice;
}

// A choice with what is known of it before it is planned.
struct Candidate {
  MeshChoice choice;
  double least_seconds = 0;
};

// All choices of meshes with so many ranks for each sequence.
class Choices {
 public:
  explicit Choices(const MeshQuestion& q) : q_(q), ranks_(q.devices * q.machines) {}

  std::vector<MeshChoice> with_context(int context) const {
    std::vector<MeshChoice> all;
    const int64_t most = std::min({int64_t{ranks_}, q_.options.model.layers, kMostRanks});
    for (int tensor = 1; tensor <= std::min<int64_t>(q_.devices, kMostRanks); tensor *= 2)
      if (q_.devices % tensor == 0 && ranks_ % (tensor * context) == 0)
        for (int stages = 1; stages <= most; ++stages)
          if (ranks_ % (tensor * context * stages) == 0)
            add_schedules(all, {.tensor = tensor, .context = context, .pipeline = stages});
    return all;
  }

 private:
  void add_schedules(std::vector<MeshChoice>& all, MeshChoice choice) const {
    add_strategies(all, choice);
    if (choice.pipeline == 1) return;
    choice.schedule = schedule(PipelineChoice::zero_bubble);
    add_strategies(all, choice);
    choice.schedule = schedule(PipelineChoice::interleaved, 2);
    if (2 * choice.pipeline <= q_.options.model.layers) add_strategies(all, choice);
  }
  void add_strategies(std::vector<MeshChoice>& all, MeshChoice choice) const {
    if (ranks_ == choice.tensor * choice.pipeline) return add_micro_batches(all, choice);
    for (const auto kind : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      // It keeps whole gradients.
      if (kind == Strategy::zero3 && choice.schedule.kind == PipelineChoice::zero_bubble) continue;
      choice.strategy = kind;
      add_micro_batches(all, choice);
    }
  }
  void add_micro_batches(std::vector<MeshChoice>& all, MeshChoice choice) const {
    const int64_t data = ranks_ / (choice.tensor * choice.context * choice.pipeline);
    const int64_t global = q_.recipe.global_batch_size;
    if (data > global) return;  // some would have nothing to do
    for (int64_t micro = 1; micro <= global / data; micro *= 2) {
      if (global % micro != 0) break;
      choice.micro_batch_size = micro;
      all.push_back(choice);
    }
  }

  const MeshQuestion& q_;
  int ranks_;
};

class Search {
 public:
  Search(const MeshQuestion& q, size_t most) : q_(q), most_(most) {}

  void among(const std::vector<MeshChoice>& choices) {
    std::vector<Candidate> candidates;
    for (const MeshChoice& choice : choices) consider(choice, candidates);
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.least_seconds < b.least_seconds;
    });
    for (const Candidate& c : candidates) {
      if (is_too_slow(c.least_seconds)) break;
      attempt(c.choice);
    }
  }
  bool nothing_fits() const { return found_.best.empty(); }
  // Of each stage the first rank was planned. Those that share a state cut it in other places, and
  // may need some more for padding: so much more than there is, at most, do the best need.
  int64_t excess() {
    int64_t most = 0;
    for (MeshPlan& plan : found_.best) {
      const RanksPlan all = plan_ranks(plan.options, q_.available);
      plan.options.ranks.rank = all.neediest;
      plan.bytes = bytes_of(all.needs).most;
      most = std::max(most, plan.bytes - q_.available.device);
    }
    return most;
  }
  MeshSearch take() {
    // All were refused, for what has nothing to do with memory.
    if (found_.best.empty() && found_.least_bytes == 0 && refused_) throw *refused_;
    return std::move(found_);
  }

 private:
  // What two choices have in common that differ in their micro-batch alone.
  using Mesh = std::tuple<int, int, int, std::string, int>;
  static Mesh mesh_of(const MeshChoice& c) {
    return {c.tensor, c.context, c.pipeline, c.schedule.text(), c.strategy};
  }

  void consider(const MeshChoice& choice, std::vector<Candidate>& candidates) {
    try {
      const TrainOptions o = options_with(q_, choice);
      spec_of(o, o.ranks);  // the model may not be cut so often
      ++found_.considered;
      const double bytes = least_bytes(o);
      if (bytes > static_cast<double>(q_.available.device))
        return note_unfit(static_cast<int64_t>(bytes));
      candidates.push_back({choice, least_seconds(q_, o, cost_model(q_.calibration, o))});
    } catch (const Error& e) {
      refuse(e);
    }
  }

  void attempt(MeshChoice choice) {
    // Larger micro-batches need more: what did not fit with a smaller one need not be tried.
    std::map<Recompute, int64_t>& too_large = too_large_[mesh_of(choice)];
    for (const Recompute policy : kPolicies) {
      if (too_large.contains(policy) && choice.micro_batch_size >= too_large[policy]) continue;
      choice.recompute = policy;
      try {
        without_activations_ = 0;
        if (plan(choice)) return;
      } catch (const Error& e) {
        return refuse(e);
      }
      too_large[policy] = choice.micro_batch_size;
      if (without_activations_ <= q_.available.device) continue;
      // Nor does it with fewer activations.
      note_unfit(without_activations_);
      for (const Recompute other : kPolicies) too_large.try_emplace(other, choice.micro_batch_size);
      return;
    }
  }

  // Whether it fits; then it is among the best if it is one of them.
  bool plan(MeshChoice choice) {
    auto plan = planned(choice);
    if (!plan) return false;
    // It saves what computation waits for, at most.
    const StepEstimate& apart = plan->step;
    if (options_with(q_, choice).choose_overlap &&
        !is_too_slow((1 - apart.exposed) * apart.seconds)) {
      choice.overlap = true;
      if (auto other = planned(choice); other && other->step.seconds < plan->step.seconds)
        plan = std::move(other);
    }
    insert(std::move(*plan));
    return true;
  }
  std::optional<MeshPlan> planned(const MeshChoice& choice) {
    TrainOptions o = options_with(q_, choice);
    MeshPlan plan{.choice = choice, .options = o};
    ++found_.planned;
    o.pipeline.cuts = cuts_of(o);
    for (const std::vector<int>& stages : stages_alike(o)) {
      o.ranks.rank = stages.front() * (o.ranks.size / o.mesh.pipeline);
      const RunPlan needed = Trainer::plan(o);
      if (needed.device.total_bytes > plan.bytes) {
        plan.bytes = needed.device.total_bytes;
        plan.options.ranks.rank = o.ranks.rank;
      }
      if (!fits(needed, q_.available)) {
        note_unfit(needed.device.total_bytes);
        without_activations_ =
            needed.device.peak_bytes - at(needed.device.at_peak, Category::activations);
        return std::nullopt;
      }
    }
    plan.data_ranks = batch_ranks(o.ranks, o.mesh).size;
    plan.micro_batches = o.pipeline.micro_batches;
    plan.step = estimate_largest(plan.options, cost_model(q_.calibration, plan.options),
                                 plan.micro_batches);
    plan.tokens_per_second =
        static_cast<double>(q_.recipe.global_batch_size * o.limits.longest) / plan.step.seconds;
    return plan;
  }

  // Whether all that were found take less.
  bool is_too_slow(double seconds) const {
    return found_.best.size() == most_ && seconds >= found_.best.back().step.seconds;
  }
  void insert(MeshPlan plan) {
    std::vector<MeshPlan>& best = found_.best;
    const auto at =
        std::upper_bound(best.begin(), best.end(), plan, [](const auto& a, const auto& b) {
          return std::tie(a.step.seconds, a.bytes) < std::tie(b.step.seconds, b.bytes);
        });
    best.insert(at, std::move(plan));
    if (best.size() > most_) best.pop_back();
  }
  // A run would refuse that mesh, too.
  void refuse(const Error& e) {
    if (e.fault() != Fault::usage) throw e;
    if (!refused_) refused_ = e;
  }
  void note_unfit(int64_t bytes) {
    found_.least_bytes = found_.least_bytes == 0 ? bytes : std::min(found_.least_bytes, bytes);
  }

  const MeshQuestion& q_;
  size_t most_;
  MeshSearch found_;
  std::map<Mesh, std::map<Recompute, int64_t>> too_large_;
  int64_t without_activations_ = 0;  // that the last one needed which did not fit
  std::optional<Error> refused_;
};

}  // namespace

Recipe MeshChoice::in(Recipe r) const {
  r.tensor_parallel = tensor;
  r.tensor_parallel_overlap = overlap ? Overlap::on : Overlap::automatic;
  r.context_parallel = context;
  r.pipeline_parallel = pipeline;
  r.pipeline_schedule = schedule;
  r.strategy.kind = strategy;
  r.micro_batch_size = micro_batch_size;
  r.activations = {.policy = recompute};
  return r;
}

std::vector<std::pair<std::string, std::string>> MeshPlan::keys() const {
  return {{"tensor_parallel", std::to_string(choice.tensor)},
          {"tensor_parallel_overlap", choice.overlap      ? "true"
                                      : choice.tensor > 1 ? "false"
                                                          : "auto"},
          {"context_parallel", std::to_string(choice.context)},
          {"pipeline_parallel", std::to_string(choice.pipeline)},
          {"pipeline_schedule", choice.schedule.text()},
          {"strategy", choice.strategy == Strategy::automatic && !options.sharding.offload
                           ? "auto"
                           : strategy_name(options.sharding)},
          {"train.micro_batch_size", std::to_string(choice.micro_batch_size)},
          {"activations", std::string(name_of(choice.recompute))}};
}

TrainOptions options_with(const MeshQuestion& q, const MeshChoice& choice) {
  TrainOptions o = q.options;
  const Recipe recipe = choice.in(q.recipe);
  o.limits.documents = choice.micro_batch_size;
  o.limits.tokens = choice.micro_batch_size * o.limits.longest;
  o.recompute = choice.recompute;
  o.recompute_to_fit = false;
  o.staging = false;  // a run drops it if it does not fit
  set_ranks(o, recipe, {0, q.devices * q.machines}, q.network, q.machines);
  return o;
}

double least_seconds(const MeshQuestion& q, const TrainOptions& o, const CostModel& machine) {
  const ModelConfig& c = o.model;
  const auto rate = [&](OpKind kind) {
    const auto& rates = machine.kinds[static_cast<size_t>(kind)];
    return (rates ? rates->flops_per_second : machine.flops_per_second) / machine.factor;
  };
  const double stages = o.mesh.pipeline, tensor = o.mesh.tensor;
  const double shares = stages * o.mesh.ranks() / o.mesh.pipeline;
  const auto micros = static_cast<double>(o.pipeline.micro_batches);
  const auto tokens = static_cast<double>(o.limits.tokens), layers = static_cast<double>(c.layers);
  const auto hidden = static_cast<double>(c.hidden);
  const double block =
      hidden * static_cast<double>(2 * c.q_width() + 2 * c.kv_width() + 3 * c.intermediate);
  const double passes = o.lora ? 2 : 3;  // forward, gradients of inputs, and of weights
  double micro = passes * 2 * tokens *
                 (layers * block / rate(OpKind::product) +
                  hidden * static_cast<double>(c.vocab) / rate(OpKind::head));
  if (c.sliding_window == 0) {
    const double pairs =
        tokens * static_cast<double>(o.limits.longest + 1) / 2 * static_cast<double>(c.q_width());
    micro += layers * pairs * (4 / rate(OpKind::attention) + 10 / rate(OpKind::attention_backward));
  }
  micro /= shares;
  const auto width = static_cast<double>(size_of(types_of(o.precision).compute));
  if (o.mesh.tensor > 1)
    // Exchanges of a block's tokens for which computation waits: four in each direction, or, if
    // they overlap, the first of the backward pass, and three halves in the forward pass.
    micro += (o.mesh.padded_to_overlap ? 2 : 8) * layers / stages *
             q.network.exchange_seconds({.count = o.mesh.tensor},
                                        tokens / o.mesh.context / tensor * hidden * width, 1);
  const double idle = o.pipeline.kind == PipelineKind::zero_bubble
                          ? (stages - 1) / 4
                          : (stages - 1) / o.pipeline.chunks;
  const double passes_seconds = (micros + idle) * micro;
  if (o.sharding.weights != Hold::shard) return passes_seconds;
  const int data = o.ranks.size / o.mesh.pipeline / o.mesh.tensor;
  const double weights = layers * block / stages / tensor * width;
  const double once =
      q.network.exchange_seconds({.stride = o.mesh.tensor, .count = data},
                                 o.quantize == Quantize::none ? weights / data : 0, 1);
  return std::max(passes_seconds, 2 * micros * once);
}

MeshSearch search_meshes(const MeshQuestion& asked, int most) {
  MeshQuestion question = asked;
  for (;;) {
    Search search(question, static_cast<size_t>(most));
    const Choices choices(question);
    const auto with_context = [&](int least) {
      std::vector<MeshChoice> all;
      const int64_t ranks = question.devices * question.machines;
      for (int context = least; context <= std::min(ranks, kMostRanks); context *= 2)
        for (const MeshChoice& choice : choices.with_context(context)) all.push_back(choice);
      return all;
    };
    if (question.options.limits.longest >= kLong) {
      search.among(with_context(1));
    } else {
      search.among(choices.with_context(1));
      if (search.nothing_fits()) search.among(with_context(2));
    }
    const int64_t excess = search.excess() - (asked.available.device - question.available.device);
    if (excess <= 0) return search.take();
    question.available.device -= excess;  // rare, so that it may take as long again
  }
}

}  // namespace capstan
