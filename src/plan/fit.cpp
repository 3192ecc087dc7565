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

// Whether `test`, such as stages_fit, holds; if recomputation is to be chosen, with any of the
// rungs that usually need least.
template <class Test>
bool holds(const TrainOptions& options, const Room& available, const Test& test) {
  if (!weights_fit(options, available)) return false;
  if (!options.recompute_to_fit) return test(options);
  const auto rungs = least_rungs(options);
  return std::any_of(rungs.begin(), rungs.end(),
                     [&](int rung) { return test(at_rung(options, rung)); });
}

bool all_fit(const TrainOptions& options, const Room& available) {
  return holds(options, available,
               [&](const auto& o) { return most_if_all_fit(o, available).has_value(); });
}

bool perhaps_fit(const TrainOptions& options, const Room& available) {
  return holds(options, available, [&](const auto& o) { return stages_fit(o, available); });
}

// The bytes that options need which nobody has asked for, if all ranks fit. Some cannot be, such as
// formats whose blocks a split would cut.
std::optional<int64_t> most_if_possible(const TrainOptions& options, const Room& available) {
  try {
    if (!weights_fit(options, available)) return std::nullopt;
    return most_if_all_fit(options, available);
  } catch (const Error& e) {
    if (e.fault() != Fault::usage) throw;
    return std::nullopt;
  }
}

// Those options as a change, if all ranks fit.
std::optional<Change> change_that_fits(std::string what, const TrainOptions& options,
                                       const Room& available,
                                       std::optional<int64_t> micro_batch = {}) {
  const auto bytes = most_if_possible(options, available);
  if (!bytes) return std::nullopt;
  return Change{std::move(what), options, micro_batch, *bytes};
}

// The first rung, starting at `from`, with which the first rank of each stage fits on its device;
// none if there is none. Usually each rung needs less than the one below; exceptions are small, but
// for pipelines: recomputation moves their cuts.
std::optional<int> rung_for_stages(const TrainOptions& options, int from, int64_t available) {
  const auto rungs = least_rungs(options);
  const int last = rungs[0];
  const auto fits_in = [&](int rung, int64_t bytes) {
    return stages_fit(at_rung(options, rung), {bytes});
  };
  const auto fits_at = [&](int rung) { return fits_in(rung, available); };
  if (fits_at(from)) return from;
  int bad = from, good = -1;
  const int64_t almost = available + available / 50;  // an exception is smaller
  bool nearly = false;
  for (const int rung : rungs) {
    if (rung <= from || good >= 0) break;
    if (fits_at(rung)) good = rung;
    nearly = nearly || fits_in(rung, almost);
  }
  if (good < 0) {
    for (int rung = from + 1; nearly && rung < last; ++rung)
      if (fits_at(rung)) return rung;
    return std::nullopt;
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

// The same, or the last if there is none.
int rung_to_try(const TrainOptions& options, int from, const Room& available) {
  const int last = least_rungs(options)[0];
  if (!weights_fit(options, available)) return last;
  return rung_for_stages(options, from, available.device).value_or(last);
}

// The first rung, starting at `from`, with which all ranks fit on their devices; the last if there
// is none.
int least_rung(const TrainOptions& options, int from, const Room& available) {
  const int last = least_rungs(options)[0];
  for (int rung = rung_to_try(options, from, available); rung < last; ++rung)
    if (most_if_all_fit(at_rung(options, rung), {available.device})) return rung;
  return last;
}

Recomputation least_recomputation(const TrainOptions& options, int from, const Room& available) {
  return at_rung(options, least_rung(options, from, available)).recompute;
}

// The options with at most `micro_batch` documents per micro-batch instead of `before`.
TrainOptions in_micro_batches(TrainOptions options, int64_t before, int64_t micro_batch) {
  BatchLimits& l = options.limits;
  l.documents = std::min(l.documents, micro_batch);
  l.tokens = std::min(l.tokens, l.documents * l.longest);
  options.single_micro_batch = false;
  // A pipeline keeps what is under way, and of more micro-batches it has more under way.
  options.pipeline.micro_batches *= (before - 1) / micro_batch + 1;
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
    return perhaps_fit(in_micro_batches(options, micro_batch, m), available);
  });
  for (auto it = end; it != divisors.begin(); --it)
    if (all_fit(in_micro_batches(options, micro_batch, it[-1]), available)) return it[-1];
  return 0;
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
    auto found = change_that_fits(std::move(name), o, available);
    if (found) changes.push_back(std::move(*found));
    return found.has_value();
  };
  for (const auto& [name, other] : other_meshes(options))
    if (attempt(name, [&](auto& o) { o = other; })) break;
  const int layers = static_cast<int>(options.model.layers);
  if (const int rung = options.recompute.rung(layers); batches_help && rung < 2 * layers) {
    const Recomputation least = least_recomputation(options, rung + 1, available);
    attempt(fmt::format("activations: {}", name_of(least)), [&](auto& o) { o.recompute = least; });
  }
  const int64_t m = batches_help ? fitting_micro_batch(options, micro_batch, available) : 0;
  if (m > 0)
    if (auto found = change_that_fits(fmt::format("train.micro_batch_size: {}", m),
                                      in_micro_batches(options, micro_batch, m), available, m))
      changes.push_back(std::move(*found));
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
    if (auto found = change_that_fits(
            fmt::format("{}{} with activations: block",
                        named_gpus(options.ranks.size / options.machines, options.machines),
                        zero3 ? "" : " with strategy: zero3"),
            options, available))
      return found;
  return std::nullopt;
}

// Adds changes until the run fits, cheapest first; none if all together are not enough.
std::optional<Change> joint_change(TrainOptions options, int64_t size, const Room& available) {
  std::vector<std::string> taken;
  std::optional<int64_t> micro_batch;
  std::optional<Change> together;
  const auto enough = [&](std::string name) {
    taken.push_back(std::move(name));
    together = change_that_fits(fmt::format("{}", fmt::join(taken, " with ")), options, available,
                                micro_batch);
    return together.has_value();
  };
  const int layers = static_cast<int>(options.model.layers);
  if (options.recompute.rung(layers) < 2 * layers) {
    options.recompute = Recompute::block;
    if (enough("activations: block")) return together;
  }
  if (const Precision narrow = narrowest(options); options.precision != narrow) {
    options.precision = narrow;
    if (enough(fmt::format("precision: {}", name_of(narrow)))) return together;
  }
  if (options.lora && options.quantize == Quantize::none) {
    options.quantize = Quantize::nf4;
    if (enough("quantize: bnb.nf4")) return together;
  }
  if (options.limits.documents > 1) {
    options = in_micro_batches(options, size, 1);
    micro_batch = 1;
    if (enough("train.micro_batch_size: 1")) return together;
  }
  for (const OptimizerClass& m : other_moments(options)) {
    take(options.optimizer, m);
    if (enough(fmt::format("optimizer: {}", name_of(m)))) return together;
    taken.pop_back();  // the next one replaces it
  }
  if (options.optimizer.kind == Kind::sgd) return std::nullopt;
  options.optimizer = plain_sgd();
  enough("optimizer: SGD");
  return together;
}

// The largest n in [1, most] for which `test` holds, if it holds for all smaller ones too; 0 if
// there is none.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& test) {
  int64_t good = 0, bad = most + 1;
  for (int64_t n = 1; n <= most && good == n / 2; n *= 2) (test(n) ? good : bad) = n;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (test(middle) ? good : bad) = middle;
  }
  return good;
}

// The largest n in [1, most] with whose options all ranks fit. The rank that the options name may
// tell: it is the one that needs most, or nearly always.
int64_t largest_that_fits(int64_t most, const Room& available,
                          const std::function<TrainOptions(int64_t)>& with) {
  int64_t n = largest(most, [&](int64_t i) {
    return holds(with(i), available,
                 [&](const auto& o) { return fits(Trainer::plan(o), available); });
  });
  if (n == 0 || all_fit(with(n), available)) return n;
  n = largest(n - 1, [&](int64_t i) { return perhaps_fit(with(i), available); });
  for (int64_t less = 1; n > 0 && !all_fit(with(n), available); less *= 2)
    n = std::max<int64_t>(0, n - less);
  return n;
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

Fit judge(const TrainOptions& asked, const Room& available) {
  const auto fit_with = [&](const TrainOptions& o) {
    RanksPlan all = plan_ranks(o, available);
    Fit fit{.plan = std::move(all.plan),
            .needs = std::move(all.needs),
            .options = o,
            .dropped_staging = 0,
            .recompute_was_chosen = asked.recompute_to_fit,
            .available = available,
            .changes = {}};
    fit.options.ranks.rank = all.neediest;
    return fit;
  };
  TrainOptions bare = asked;
  bare.staging = false;  // dropped before recomputation is added
  std::optional<Fit> without;
  if (asked.recompute_to_fit) {
    const int rung = rung_to_try(bare, 0, available);
    without = fit_with(at_rung(bare, rung));
    if (without->plan.device.total_bytes > available.device && rung < least_rungs(bare)[0])
      without = fit_with(at_rung(bare, least_rung(bare, rung + 1, available)));
    bare = without->options;
  }
  if (!asked.staging) return without ? std::move(*without) : fit_with(bare);
  TrainOptions staged = bare;
  staged.staging = true;
  Fit with = fit_with(staged);
  if (with.fits()) return with;
  if (!without) without = fit_with(bare);
  without->dropped_staging = total(with.plan) - total(without->plan);
  return std::move(*without);
}

Fit fit_of(const TrainOptions& asked, int64_t micro_batch, const Room& available) {
  Fit fit = judge(asked, available);
  if (fit.fits()) return fit;
  fit.changes = single_changes(fit.options, micro_batch, fit.plan, available);
  if (fit.changes.empty()) {
    if (auto more = change_of_gpus(fit.options, available)) fit.changes.push_back(std::move(*more));
    if (auto joint = joint_change(fit.options, micro_batch, available))
      fit.changes.push_back(std::move(*joint));
  }
  return fit;
}

void require_fit(const Fit& fit) {
  require(fit.fits(), Fault::does_not_fit, "{}", fit.verdict());
}

int64_t largest_micro_batch(const TrainOptions& options, const Room& available) {
  constexpr int64_t kMost = 65536;
  const int64_t planned = options.limits.documents;
  const auto with = [&](int64_t n) {
    TrainOptions o = options;
    // Below the whole batch, gradients persist between micro-batches.
    o.single_micro_batch = o.single_micro_batch && n >= planned;
    o.pipeline.micro_batches = (planned * o.pipeline.micro_batches - 1) / n + 1;
    o.limits.documents = n;
    o.limits.tokens = n * o.limits.longest;
    return o;
  };
  // So the whole batch may fit although a smaller micro-batch does not.
  if (options.single_micro_batch && planned <= kMost && all_fit(with(planned), available))
    return planned + largest_that_fits(kMost - planned, available,
                                       [&](int64_t n) { return with(planned + n); });
  return largest_that_fits(options.single_micro_batch ? std::min(kMost, planned - 1) : kMost,
                           available, with);
}

int64_t largest_sequence(const TrainOptions& options, const Room& available,
                         std::optional<int64_t> generated) {
  return largest_that_fits(options.model.max_positions, available, [&](int64_t n) {
    TrainOptions o = options;
    o.limits.longest = n;
    o.limits.tokens = n * o.limits.documents;
    if (o.sample_positions > 0 && generated)
      o.sample_positions = std::min(o.model.max_positions, n + *generated);
    return o;
  });
}

}  // namespace capstan
