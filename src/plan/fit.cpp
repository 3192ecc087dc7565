#include "plan/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "train/setup.h"

namespace capstan {
namespace {

TrainOptions at_rung(TrainOptions options, int rung) {
  options.recompute = Recomputation::at_rung(rung, static_cast<int>(options.model.layers));
  options.recompute_to_fit = false;
  return options;
}

// The rungs among which one usually needs the least memory of the whole ladder.
std::array<int, 3> least_rungs(const TrainOptions& options) {
  const int layers = static_cast<int>(options.model.layers);
  return {2 * layers, 2 * layers - 1, layers};
}

// A lower bound without a plan: the weights alone, with at least half a byte each.
bool weights_fit(const TrainOptions& options, const Room& available) {
  const int64_t holders = options.sharding.weights == Hold::shard
                              ? options.ranks.size
                              : options.mesh.pipeline * options.mesh.tensor;
  const int64_t count = make_spec(options.model).parameter_count() / holders;
  const int64_t halves =
      options.quantize == Quantize::none ? 2 * size_of(types_of(options.precision).compute) : 1;
  return count / 2 <= available.device / halves;
}

bool fits(const TrainOptions& options, const Room& available) {
  if (!weights_fit(options, available)) return false;
  if (!options.recompute_to_fit) return fits(Trainer::plan(options), available);
  const auto rungs = least_rungs(options);
  return std::any_of(rungs.begin(), rungs.end(), [&](int rung) {
    return fits(Trainer::plan(at_rung(options, rung)), available);
  });
}

// Of options that nobody has asked for: some cannot be, such as formats whose blocks a split would
// cut.
bool would_fit(const TrainOptions& options, const Room& available) {
  try {
    return fits(options, available);
  } catch (const Error& e) {
    if (e.fault() != Fault::usage) throw;
    return false;
  }
}

// The first rung, starting at `from`, that fits on the device; the last if none does. Usually each
// rung needs less than the one below; exceptions are small.
int least_rung(const TrainOptions& options, int from, const Room& available) {
  const auto rungs = least_rungs(options);
  const int last = rungs[0];
  if (!weights_fit(options, available)) return last;
  const auto plan_at = [&](int rung) { return Trainer::plan(at_rung(options, rung)).device; };
  const auto fits_at = [&](int rung) { return plan_at(rung).total_bytes <= available.device; };
  if (fits_at(from)) return from;
  int bad = from, good = -1;
  constexpr int64_t kSmall = 50;  // an exception is less than this part of the whole
  bool nearly = false;
  for (const int rung : rungs) {
    if (rung <= from || good >= 0) break;
    const MemoryPlan plan = plan_at(rung);
    const int64_t lack = plan.total_bytes - available.device;
    if (lack <= 0) good = rung;
    nearly = nearly || lack < plan.total_bytes / kSmall;
  }
  if (good < 0) {
    for (int rung = from + 1; nearly && rung < last; ++rung)
      if (fits_at(rung)) return rung;
    return last;
  }
  while (good - bad > 1) {
    const int middle = bad + (good - bad) / 2;
    (fits_at(middle) ? good : bad) = middle;
  }
  constexpr int kNear = 4;
  for (int rung = good - 1; rung > std::max(from, good - kNear); --rung)
    if (fits_at(rung)) good = rung;
  return good;
}

Recomputation least_recomputation(const TrainOptions& options, int from, const Room& available) {
  return at_rung(options, least_rung(options, from, available)).recompute;
}

// The options with at most `micro_batch` documents per micro-batch.
TrainOptions in_micro_batches(TrainOptions options, int64_t micro_batch) {
  BatchLimits& l = options.limits;
  l.documents = std::min(l.documents, micro_batch);
  l.tokens = std::min(l.tokens, l.documents * l.longest);
  options.single_micro_batch = false;
  return options;
}

// The largest smaller micro-batch that fits and divides `micro_batch`; 0 if none does.
int64_t fitting_micro_batch(const TrainOptions& options, int64_t micro_batch,
                            const Room& available) {
  std::vector<int64_t> divisors;
  for (int64_t m = 1; m < options.limits.documents; ++m)
    if (micro_batch % m == 0) divisors.push_back(m);
  // More documents never need less memory, so those that fit come first.
  const auto end = std::partition_point(divisors.begin(), divisors.end(), [&](int64_t m) {
    return fits(in_micro_batches(options, m), available);
  });
  return end == divisors.begin() ? 0 : end[-1];
}

using Kind = OptimizerOptions::Kind;

OptimizerOptions plain_sgd() {
  OptimizerOptions o;
  o.kind = Kind::sgd;
  return o;
}

// Where AdamW may keep its moments, and in how many bits.
constexpr OptimizerClass kMoments[] = {
    {Kind::adamw, false}, {Kind::adamw, true}, {Kind::adamw8bit, false}, {Kind::adamw8bit, true}};

// Alternatives to the current optimizer that use no more bits. Paged matters only on a GPU.
std::vector<OptimizerClass> other_moments(const TrainOptions& options) {
  std::vector<OptimizerClass> others;
  const OptimizerClass now{options.optimizer.kind, options.optimizer.paged};
  for (const OptimizerClass& m : kMoments)
    if (now.kind <= m.kind && m != now && (!m.paged || options.device == Device::cuda))
      others.push_back(m);
  return others;
}

void take(OptimizerOptions& optimizer, const OptimizerClass& moments) {
  optimizer.kind = moments.kind;
  optimizer.paged = moments.paged;
}

// Twice as many GPUs, on as few machines as usually have them; false: these are enough, or a step
// has no micro-batch for more.
bool add_gpus(TrainOptions& options) {
  constexpr int kMost = 64, kOfMachine = 8;
  if (2 * options.ranks.size > kMost || options.pipeline.micro_batches < 2) return false;
  if (2 * options.ranks.size / options.machines > kOfMachine) options.machines *= 2;
  if (options.machines > 1) options.network.room = true;
  // The rank that needs most stays in its stage.
  const int in_stage = options.ranks.size / options.mesh.pipeline;
  options.ranks.rank += options.ranks.rank / in_stage * in_stage;
  options.ranks.size *= 2;
  options.sharding.machines = std::max(1, machines_of_part(options));
  options.pipeline.micro_batches = (options.pipeline.micro_batches - 1) / 2 + 1;
  options.single_micro_batch = options.pipeline.micro_batches == 1;
  return true;
}

// Strategies that keep less on each rank than the current one, and for GPUs more ranks. Ranks on
// CPUs share the memory of their machine: more of them add none.
std::vector<std::pair<std::string, TrainOptions>> other_meshes(const TrainOptions& options) {
  std::vector<std::pair<std::string, TrainOptions>> others;
  if (options.ranks.size == 1) return others;
  bool less = false;
  for (const Sharding& sharding : {kDdp, kZero1, kZero2, kZero3}) {
    const std::string name = strategy_name(sharding);
    if (less) {
      others.emplace_back("strategy: " + name, options);
      others.back().second.sharding = sharding;
      others.back().second.sharding.machines = options.sharding.machines;
    }
    less = less || name == strategy_name(options.sharding);
  }
  const std::string strategy =
      strategy_name(options.sharding) == strategy_name(kZero3) ? "" : " with strategy: zero3";
  TrainOptions o = options;
  o.sharding = kZero3;
  while (options.device == Device::cuda && add_gpus(o))
    others.emplace_back(named_gpus(o.ranks.size / o.machines, o.machines) + strategy, o);
  return others;
}

// The precision with the smallest state.
Precision narrowest(const TrainOptions& o) {
  return o.has_bf16 ? Precision::bf16_true : Precision::f16_true;
}

// Single changes that make the run fit.
std::vector<Change> single_changes(const TrainOptions& options, int64_t micro_batch,
                                   const RunPlan& plan, const Room& available) {
  std::vector<Change> changes;
  // Smaller activations help only if these fit.
  const ByCategory& most = plan.device.highest;
  const bool batches_help =
      at(most, Category::weights) + at(most, Category::optimizer) <= available.device &&
      plan.host.total_bytes <= available.host;
  const auto attempt = [&](std::string name, auto&& change) {
    TrainOptions o = options;
    change(o);
    if (would_fit(o, available)) changes.push_back({std::move(name), std::move(o)});
  };
  for (auto& [name, other] : other_meshes(options))
    if (would_fit(other, available)) {
      changes.push_back({name, std::move(other)});
      break;
    }
  const int layers = static_cast<int>(options.model.layers);
  if (const int rung = options.recompute.rung(layers); batches_help && rung < 2 * layers) {
    const Recomputation least = least_recomputation(options, rung + 1, available);
    attempt(fmt::format("activations: {}", name_of(least)), [&](auto& o) { o.recompute = least; });
  }
  const int64_t m = batches_help ? fitting_micro_batch(options, micro_batch, available) : 0;
  if (m > 0)
    changes.push_back(
        {fmt::format("train.micro_batch_size: {}", m), in_micro_batches(options, m), m});
  const auto attempt_moments = [&](bool in_as_many_bits) {
    for (const OptimizerClass& others : other_moments(options))
      if ((others.kind == options.optimizer.kind) == in_as_many_bits)
        attempt(fmt::format("optimizer: {}", name_of(others)),
                [&](auto& o) { take(o.optimizer, others); });
  };
  attempt_moments(true);  // does not change results
  if (options.device == Device::cuda && !options.sharding.offload &&
      types_of(options.precision).has_master()) {
    Sharding offloaded = options.sharding;
    offloaded.offload = true;
    attempt(fmt::format("strategy: {}", strategy_name(offloaded)),
            [&](auto& o) { o.sharding = offloaded; });
  }
  const Precision narrow = narrowest(options);
  if (options.precision != narrow)
    attempt(fmt::format("precision: {}", name_of(narrow)), [&](auto& o) { o.precision = narrow; });
  if (options.lora && options.quantize == Quantize::none)
    attempt("quantize: bnb.nf4", [](auto& o) { o.quantize = Quantize::nf4; });
  attempt_moments(false);
  if (options.optimizer.kind != Kind::sgd)
    attempt("optimizer: SGD", [](auto& o) { o.optimizer = plain_sgd(); });
  return changes;
}

// Recomputes all it can, and adds GPUs until the run fits; none if the most are not enough.
std::optional<Change> change_of_gpus(TrainOptions options, const Room& available) {
  if (options.device != Device::cuda) return std::nullopt;
  const bool zero3 = strategy_name(options.sharding) == strategy_name(kZero3);
  options.recompute = Recompute::block;
  options.sharding = kZero3;
  while (add_gpus(options))
    if (would_fit(options, available))
      return Change{fmt::format("{}{} with activations: block",
                                named_gpus(options.ranks.size / options.machines, options.machines),
                                zero3 ? "" : " with strategy: zero3"),
                    options};
  return std::nullopt;
}

// Adds changes until the run fits, cheapest first; none if all together are not enough.
std::optional<Change> joint_change(TrainOptions options, const Room& available) {
  std::vector<std::string> taken;
  std::optional<int64_t> micro_batch;
  const auto enough = [&](std::string name) {
    taken.push_back(std::move(name));
    return would_fit(options, available);
  };
  const auto together = [&] {
    return Change{fmt::format("{}", fmt::join(taken, " with ")), options, micro_batch};
  };
  const int layers = static_cast<int>(options.model.layers);
  if (options.recompute.rung(layers) < 2 * layers) {
    options.recompute = Recompute::block;
    if (enough("activations: block")) return together();
  }
  if (const Precision narrow = narrowest(options); options.precision != narrow) {
    options.precision = narrow;
    if (enough(fmt::format("precision: {}", name_of(narrow)))) return together();
  }
  if (options.lora && options.quantize == Quantize::none) {
    options.quantize = Quantize::nf4;
    if (enough("quantize: bnb.nf4")) return together();
  }
  if (options.limits.documents > 1) {
    options = in_micro_batches(options, 1);
    micro_batch = 1;
    if (enough("train.micro_batch_size: 1")) return together();
  }
  for (const OptimizerClass& m : other_moments(options)) {
    take(options.optimizer, m);
    if (enough(fmt::format("optimizer: {}", name_of(m)))) return together();
    taken.pop_back();  // the next one replaces it
  }
  options.optimizer = plain_sgd();
  return enough("optimizer: SGD") ? std::optional(together()) : std::nullopt;
}

// The largest n in [1, most] that fits, if all smaller ones fit too; 0 if none does.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& it_fits) {
  int64_t good = 0, bad = most + 1;
  for (int64_t n = 1; n <= most && good == n / 2; n *= 2) (it_fits(n) ? good : bad) = n;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (it_fits(middle) ? good : bad) = middle;
  }
  return good;
}

int64_t total(const RunPlan& plan) {
  return plan.device.total_bytes + plan.host.total_bytes;
}

// Host memory is planned for each rank; a machine needs it for all of its ranks.
std::string of_host_memory(const TrainOptions& options) {
  return options.ranks.size > 1 ? "of host memory for each GPU" : "of host memory";
}

std::string needed_on_host(const RunPlan& plan, int64_t available, const TrainOptions& options) {
  const std::string of =
      available == Room().host ? "" : fmt::format(" of {}", format_bytes(available));
  return fmt::format("{}{} {}", format_bytes(plan.host.total_bytes), of, of_host_memory(options));
}

}  // namespace

std::string named_gpus(int devices, int machines) {
  return fmt::format("devices: {}{}", devices,
                     machines > 1 ? fmt::format(", num_nodes: {}", machines) : "");
}

std::vector<std::string> Fit::names_of_changes() const {
  std::vector<std::string> names;
  for (const Change& change : changes) names.push_back(change.what);
  return names;
}

std::string Fit::verdict() const {
  const bool gpu = options.device == Device::cuda;
  if (fits()) {
    std::string s = fmt::format("fits: needs {} of {}{}", format_bytes(plan.device.total_bytes),
                                format_bytes(available.device), gpu ? " on the GPU" : "");
    if (plan.host.total_bytes > 0) s += " and " + needed_on_host(plan, available.host, options);
    if (dropped_staging > 0 && recompute_was_chosen)
      s += "; no memory is left for a copy of the state, so training pauses while a checkpoint is "
           "written";
    else if (dropped_staging > 0)
      s += fmt::format("; with {} more{} it could save without pausing",
                       format_bytes(dropped_staging), gpu ? " " + of_host_memory(options) : "");
    return s;
  }
  std::vector<std::string> short_of;
  if (plan.device.total_bytes > available.device)
    short_of.push_back(fmt::format("{}{}, {} free", format_bytes(plan.device.total_bytes),
                                   gpu ? " on the GPU" : "", format_bytes(available.device)));
  if (plan.host.total_bytes > available.host)
    short_of.push_back(fmt::format("{} {}, {} free", format_bytes(plan.host.total_bytes),
                                   of_host_memory(options), format_bytes(available.host)));
  const std::string way =
      changes.empty()
          ? "No change of activations, precision, micro-batch or optimizer is enough: use "
            "a smaller model or a shorter train.max_seq_length"
          : fmt::format("Fits with: {}", fmt::join(names_of_changes(), " · "));
  return fmt::format("does not fit: needs {}. {}", fmt::join(short_of, ", and "), way);
}

Fit fit_of(const TrainOptions& asked, int64_t micro_batch, const Room& available) {
  TrainOptions options = asked;
  if (asked.recompute_to_fit) {
    options.staging = false;  // dropped before recomputation is added
    options.recompute = least_recomputation(options, 0, available);
    options.recompute_to_fit = false;
    options.staging = asked.staging;
  }
  Fit fit{.plan = Trainer::plan(options),
          .options = options,
          .dropped_staging = 0,
          .recompute_was_chosen = asked.recompute_to_fit,
          .available = available,
          .changes = {}};
  if (fit.fits()) return fit;
  if (options.staging) {
    const int64_t staged = total(fit.plan);
    fit.options.staging = false;
    fit.plan = Trainer::plan(fit.options);
    fit.dropped_staging = staged - total(fit.plan);
    if (fit.fits()) return fit;
  }
  fit.changes = single_changes(fit.options, micro_batch, fit.plan, available);
  if (fit.changes.empty()) {
    if (auto more = change_of_gpus(fit.options, available)) fit.changes.push_back(std::move(*more));
    if (auto joint = joint_change(fit.options, available)) fit.changes.push_back(std::move(*joint));
  }
  return fit;
}

Recomputation least_recomputation_that_fits(const TrainOptions& options, const Room& available) {
  return least_recomputation(options, 0, available);
}

void require_fit(const Fit& fit) {
  require(fit.fits(), Fault::does_not_fit, "{}", fit.verdict());
}

int64_t largest_micro_batch(const TrainOptions& options, const Room& available) {
  constexpr int64_t kMost = 65536;
  const int64_t planned = options.limits.documents;
  const auto fits_with = [&](int64_t n) {
    TrainOptions o = options;
    // Below the whole batch, gradients persist between micro-batches.
    o.single_micro_batch = o.single_micro_batch && n >= planned;
    o.limits.documents = n;
    o.limits.tokens = n * o.limits.longest;
    return fits(o, available);
  };
  // So the whole batch may fit although a smaller micro-batch does not.
  if (options.single_micro_batch && planned <= kMost && fits_with(planned))
    return planned + largest(kMost - planned, [&](int64_t n) { return fits_with(planned + n); });
  return largest(options.single_micro_batch ? std::min(kMost, planned - 1) : kMost, fits_with);
}

int64_t largest_sequence(const TrainOptions& options, const Room& available,
                         std::optional<int64_t> generated) {
  return largest(options.model.max_positions, [&](int64_t n) {
    TrainOptions o = options;
    o.limits.longest = n;
    o.limits.tokens = n * o.limits.documents;
    if (o.sample_positions > 0 && generated)
      o.sample_positions = std::min(o.model.max_positions, n + *generated);
    return fits(o, available);
  });
}

}  // namespace capstan
