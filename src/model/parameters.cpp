#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/parameter_ranges.h"
#include "model/saved_tensor.h"
#include "ops/elementwise.h"

namespace capstan {

PrecisionTypes types_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return {DType::f32, DType::f32, DType::f32, DType::f32};
    case Precision::bf16_true: return {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
    // In f16 the second moments would vanish: they are squares of gradients.
    case Precision::f16_true: return {DType::f16, DType::f16, DType::f16, DType::f32};
    case Precision::f16_mixed: return {DType::f16, DType::f32, DType::f32, DType::f32};
    case Precision::bf16_mixed:
    case Precision::fp8_mixed: return {DType::bf16, DType::f32, DType::f32, DType::f32};
  }
  fail(Fault::bug, "unknown precision");
}

Precision with_bf16(Precision precision) {
  if (precision == Precision::f16_true) return Precision::bf16_true;
  return precision == Precision::f16_mixed ? Precision::bf16_mixed : precision;
}

Precision with_f16(Precision precision) {
  if (precision == Precision::bf16_true) return Precision::f16_true;
  return types_of(precision).compute == DType::bf16 ? Precision::f16_mixed : precision;
}

void require_precision(Precision precision, Device device) {
  if (types_of(precision).compute != DType::bf16 || computes_bf16(device)) return;
  fail(Fault::device,
       "precision: {} needs a GPU that computes with bf16 (compute capability 8.0, Ampere, or "
       "newer), but {} does not; use {}",
       name_of(precision), device_name(device), name_of(with_f16(precision)));
}

namespace {

using Layout = UnitTensors::Layout;

template <class Test>
std::vector<bool> rows_where(const ModelSpec& spec, const Test& test) {
  std::vector<bool> rows;
  for (const Param& p : spec.params) rows.push_back(test(p));
  return rows;
}

// On one rank, or one for each replica, a slice is the whole.
Sharding least_of(const Sharding& sharding, int ranks) {
  return ranks == 1 || ranks == sharding.replicas
             ? Sharding{.machines = sharding.machines, .offload = sharding.offload}
             : sharding;
}

int ranks_per_replica(const Communicator& group, const Sharding& sharding) {
  require(group.size() % sharding.replicas == 0, Fault::bug, "{} ranks cannot be {} replicas",
          group.size(), sharding.replicas);
  return group.size() / sharding.replicas;
}
Members shard_members(const Communicator& group, const Sharding& sharding) {
  const int each = ranks_per_replica(group, sharding);
  return {.first = group.rank() / each * each, .stride = 1, .count = each};
}
Members replica_members(const Communicator& group, const Sharding& sharding) {
  const int each = ranks_per_replica(group, sharding);
  return {.first = group.rank() % each, .stride = each, .count = sharding.replicas};
}

std::vector<bool> trainable_rows(const ModelSpec& spec) {
  return rows_where(spec, [](const Param& p) { return p.trainable; });
}

}  // namespace

Parameters::Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients,
                       const Mesh& mesh, const Sharding& sharding, Arena* host,
                       const StageUnits& stages)
    : spec_(std::move(spec)),
      precision_(precision),
      gradients_(gradients),
      arena_(arena),
      mesh_(mesh),
      stages_(stages.empty()
                  ? StageUnits{std::vector<bool>(static_cast<size_t>(spec_.units()), true)}
                  : stages),
      units_(stages_.at(static_cast<size_t>(mesh.pipe().stage()))),
      group_(mesh.data().by_machine(sharding.machines)),
      sharding_(least_of(sharding, group_.size())),
      shards_(group_.part(shard_members(group_, sharding_))),
      replicas_(group_.part(replica_members(group_, sharding_))),
      weights_(spec_, types().compute, trainable_rows(spec_), Layout::flat, Category::weights,
               "weight", shards_.ranks(), sharding_.replicas),
      frozen_(
          spec_, types().compute,
          rows_where(spec_,
                     [](const Param& p) { return !p.trainable && p.quantize == Quantize::none; }),
          Layout::flat, Category::weights, "weight", shards_.ranks(), sharding_.replicas),
      masters_(
          spec_, types().master,
          rows_where(spec_, [&](const Param& p) { return p.trainable && types().has_master(); }),
          Layout::flat, Category::weights, "master", shards_.ranks(), sharding_.replicas),
      grads_(spec_, types().grad, trainable_rows(spec_),
             gradients == Gradients::in_step && sharding_.gradients == Hold::whole ? Layout::apart
                                                                                   : Layout::flat,
             Category::gradients, "gradient", shards_.ranks(), sharding_.replicas),
      quantized_(spec_, shards_.ranks()),
      gathered_(static_cast<size_t>(spec_.units())),
      reductions_(static_cast<size_t>(spec_.units())),
      written_whole_(spec_.params.size()),
      first_backward_(static_cast<size_t>(spec_.units())) {
  require(sharding.state == Hold::shard ||
              (sharding.weights == Hold::whole && sharding.gradients == Hold::whole),
          Fault::bug, "sharded weights or gradients need a sharded state");
  const auto keep_in = [](Arena& memory, auto& kind, int unit, Hold hold) {
    if (hold == Hold::whole)
      kind.hold(memory, unit);
    else
      kind.hold_slice(memory, unit);
  };
  const auto keep = [&](auto& kind, int unit, Hold hold) { keep_in(arena, kind, unit, hold); };
  Arena& for_state = sharding_.offload && host != nullptr ? *host : arena;
  for (int unit = 0; unit < spec_.units(); ++unit) {
    if (!has(unit)) continue;
    keep(weights_, unit, sharding_.weights);
    keep(frozen_, unit, sharding_.weights);
    keep(quantized_, unit, sharding_.weights);
    keep_in(for_state, masters_, unit, sharding_.state);
    if (gradients == Gradients::kept || sharding_.gradients == Hold::shard)
      if (gradients != Gradients::none) keep(grads_, unit, sharding_.gradients);
    weights_.add_ranges(all_trainable_, unit);
    if (sharding_.weights == Hold::whole) frozen_.add_ranges(frozen_ranges_, unit);
    if (sharding_.weights == Hold::shard) frozen_.add_ranges(frozen_ranges_, unit, shards_.rank());
  }
  if (gradients != Gradients::none) {
    int64_t largest = 0;
    for (int unit = 0; unit < spec_.units(); ++unit)
      if (has(unit)) largest = std::max(largest, grads_.flat_bytes(unit));
    room_ = group_.make_room(arena, largest);
    if (shares_tied()) tied_room_ = mesh_.pipe().ends().make_room(arena, grads_.flat_bytes(0));
  }
  for (auto* ranges : {&all_trainable_, &frozen_ranges_}) {
    sort_by_param(*ranges);
    *ranges = cut_by_parts(spec_, std::move(*ranges));
  }
  for (int rank = 0, count = spec_.share.ranks().size; count > 1 && rank < count; ++rank) {
    specs_.push_back(spec_of_rank(spec_, rank));
    shares_.emplace_back(specs_.back(), types().compute, trainable_rows(specs_.back()),
                         Layout::flat, Category::weights, "weight", shards_.ranks(),
                         sharding_.replicas);
  }
  if (gradients != Gradients::none) make_copies(arena);
  owned_ = owned_by(mesh_.all().rank());
  updated_ = all_trainable_;
  if (sharding_.state == Hold::shard) {
    updated_.clear();
    for (int unit = 0; unit < spec_.units(); ++unit)
      if (has(unit)) weights_.add_ranges(updated_, unit, shards_.rank());
    sort_by_param(updated_);
    updated_ = cut_by_parts(spec_, std::move(updated_));
  }
  stored_ranges_ =
      types().has_master() || sharding_.weights == Hold::shard ? updated_ : all_trainable_;
  stored_ranges_.insert(stored_ranges_.end(), frozen_ranges_.begin(), frozen_ranges_.end());
  sort_by_param(stored_ranges_);
}

Parameters::~Parameters() {
  bool pending = false;
  for (const Work& work : reductions_) pending = pending || work.pending();
  for (const Gathered& g : gathered_)
    pending = pending || g.weights.pending() || g.frozen.pending() || g.quantized.pending();
  if (pending) mesh_.all().abort("a rank ended in the middle of a step");
}

Tensor Parameters::stored(int i) const {
  const bool trainable = spec_.params[static_cast<size_t>(i)].trainable;
  require((!trainable || !types().has_master() || sharding_.state == Hold::whole) &&
              sharding_.weights == Hold::whole,
          Fault::bug, "{}: this rank has only part of it",
          spec_.params[static_cast<size_t>(i)].name);
  return master(i) ? master(i) : weight(i);
}

Tensor Parameters::stored(const Range& range) const {
  const Param& p = spec_.params[static_cast<size_t>(range.param)];
  if (!p.trainable) return frozen_.values(range);
  return types().has_master() ? masters_.values(range) : weights_.values(range);
}

void Parameters::store_frozen(Queue& q, int i, int part, Tensor x) {
  const Param& p = spec_.params[static_cast<size_t>(i)];
  require(!p.trainable, Fault::bug, "{} is not frozen", p.name);
  if (quantized(i) != nullptr) return quantized_.store(q, i, part, x);
  const Part& own = p.parts[static_cast<size_t>(part)];
  x = x.rows(own.row, own.rows);
  if (p.columns() < p.whole_columns()) x = x.cols(own.column, p.columns());
  cast(q, weight(i).rows(own.first_row, own.rows), x);
}

void Parameters::initialize(Queue& q, uint64_t seed) {
  for (const Param& p : spec_.params)
    require(p.quantize == Quantize::none, Fault::bug,
            "{} is quantized: load it instead of initializing it", p.name);
  for (const Range& r : frozen_ranges_) initialize(q, seed, r, stored(r));
  initialize_trainable(q, seed, false);
}

void Parameters::initialize_adapters(Queue& q, uint64_t seed) {
  initialize_trainable(q, seed, true);
}

void Parameters::initialize_trainable(Queue& q, uint64_t seed, bool adapters) {
  for (const Range& r : stored_ranges_) {
    const Param& p = spec_.params[static_cast<size_t>(r.param)];
    if (p.trainable && (!adapters || p.adapter)) initialize(q, seed, r, stored(r));
  }
  refresh_weights(q);
}

void Parameters::initialize(Queue& q, uint64_t seed, const Range& range, Tensor values) {
  const Param& p = spec_.params[static_cast<size_t>(range.param)];
  if (spec_.share.ranks().size == 1) return initialize(q, seed, p, range, values);
  const Part& part = part_of(p, range);
  const int64_t begin = range.first - part.first_row * p.columns();
  cut_in_whole_param(p, part).for_runs(
      begin, range.count, [&](int64_t i, int64_t in_whole, int64_t n) {
        initialize(q, seed, p, {range.param, in_whole, n}, values.rows(i - begin, n));
      });
}

void Parameters::initialize(Queue& q, uint64_t seed, const Param& p, const Range& range,
                            Tensor values) {
  const RngKey key{.seed = seed, .site = site::init + static_cast<uint32_t>(range.param)};
  switch (p.init) {
    case Init::normal: {
      const auto deviation = static_cast<float>(spec_.config.init_std);
      return fill_normal(q, values, deviation, key, range.first);
    }
    case Init::uniform: {
      const float bound = 1.0f / std::sqrt(static_cast<float>(p.whole_columns()));
      return fill_uniform(q, values, bound, key, range.first);
    }
    case Init::ones: return fill(q, values, 1);
    case Init::zeros: return fill(q, values, 0);
  }
}

void Parameters::refresh_weights(Queue& q) {
  if (!types().has_master()) return;
  for (const Range& r : updated_) cast(q, weight(r), master(r));
  end_update(q);
  settle(q);
}

// Marks gradients that one op overwrites; zeroes the others.
void Parameters::begin_grads(int unit) {
  first_backward_[static_cast<size_t>(unit)] = true;
  for (const Range& r : all_trainable_)
    if (spec_.params[static_cast<size_t>(r.param)].unit == unit &&
        !written_whole_[static_cast<size_t>(r.param)])
      zeroed_.push_back(slice(grad(r.param), r));
}

void Parameters::begin_step(Queue& q) {
  if (gradients_ != Gradients::kept || sharding_.gradients == Hold::shard) return;
  zeroed_.clear();
  for (int unit = 0; unit < spec_.units(); ++unit) begin_grads(unit);
  fill_zeros(q, zeroed_);
}

void Parameters::begin_micro_batch(bool first, bool last) {
  first_micro_ = first;
  last_micro_ = last;
}

int64_t Parameters::schedule_key() const {
  const bool reduces =
      (group_.size() > 1 || !copies_.empty()) &&
      (last_micro_ || (sharding_.gradients == Hold::shard && replicas_.size() == 1));
  const bool joins = std::any_of(gathered_.begin(), gathered_.end(),
                                 [](const Gathered& g) { return g.weights.pending(); });
  return int64_t{first_micro_} | int64_t{reduces} << 1 | int64_t{joins} << 2;
}

int64_t Parameters::schedule_key(Pass pass) const {
  return pass == Pass::forward ? schedule_key() & int64_t{1} << 2 : schedule_key();
}

void Parameters::gather(Queue& q, int unit) {
  if (sharding_.weights == Hold::whole) return;
  Gathered& g = gathered_[static_cast<size_t>(unit)];
  if (weights_.hold(arena_, unit))
    g.weights = shards_.for_unit(unit).all_gather(q, weights_.flat(unit), weights_.slice(unit));
  if (frozen_.hold(arena_, unit))
    g.frozen = shards_.for_unit(unit).all_gather(q, frozen_.flat(unit), frozen_.slice(unit));
  if (quantized_.hold(arena_, unit))
    g.quantized =
        shards_.for_unit(unit).all_gather(q, quantized_.flat(unit), quantized_.slice(unit));
}

void Parameters::gather_ahead(Queue& q, int unit, Pass pass) {
  const int last = spec_.units() - 1, lowest = spec_.lowest_trainable_unit();
  for (int ahead = 1; ahead <= sharding_.ahead; ++ahead) {
    const int next = pass == Pass::forward ? unit + ahead : unit - ahead;
    if (next <= last && (pass == Pass::forward || next >= lowest) && next >= 0 && has(next))
      gather(q, next);
  }
}

void Parameters::acquire_weights(Queue& q, int unit) {
  Gathered& g = gathered_[static_cast<size_t>(unit)];
  ++g.users;
  g.weights.join(q);
  g.frozen.join(q);
  g.quantized.join(q);
}

void Parameters::acquire(Queue& q, int unit, Pass pass) {
  gather(q, unit);
  if (tied_head(unit)) gather(q, 0);
  gather_ahead(q, unit, pass);
  acquire_weights(q, unit);
  if (tied_head(unit)) acquire_weights(q, 0);
  if (pass == Pass::forward) return;
  require(gradients_ != Gradients::none, Fault::bug, "backward pass without gradients");
  if (gradients_ == Gradients::kept && sharding_.gradients == Hold::whole) return;
  zeroed_.clear();
  // A tied embedding gets its first gradient from the head, in the last unit.
  if (tied_head(unit) && grads_.hold(arena_, 0)) begin_grads(0);
  if (grads_.hold(arena_, unit)) begin_grads(unit);
  fill_zeros(q, zeroed_);
}

void Parameters::zero_grads(Queue& q, int unit) {
  if (!first_backward_[static_cast<size_t>(unit)]) return;
  zeroed_.clear();
  for (const Range& r : all_trainable_)
    if (spec_.params[static_cast<size_t>(r.param)].unit == unit &&
        written_whole_[static_cast<size_t>(r.param)])
      zeroed_.push_back(slice(grad(r.param), r));
  fill_zeros(q, zeroed_);
}

void Parameters::complete(Queue& q, int unit) {
  first_backward_[static_cast<size_t>(unit)] = false;
  if (grads_.empty(unit) || !(last_micro_ || sharding_.gradients == Hold::shard)) return;
  sum_copies(q, unit);
  reduce(q, unit);
}

void Parameters::reduce(Queue& q, int unit) {
  Work& work = reductions_[static_cast<size_t>(unit)];
  if (sharding_.gradients == Hold::shard) {
    work = shards_.for_unit(unit).reduce_scatter(q, grads_.slice(unit), grads_.flat(unit),
                                                 first_micro_ ? Write::replace : Write::add);
    finish_reduction(q);  // of the unit before: two units of whole gradients at a time
    reducing_ = unit;
  } else if (group_.size() > 1) {
    work = sharding_.state == Hold::shard
               ? group_.for_unit(unit).reduce_scatter(q, grads_.slice(unit), grads_.flat(unit))
               : group_.for_unit(unit).all_reduce(q, grads_.flat(unit));
  }
}

void Parameters::finish_reduction(Queue& q) {
  if (reducing_ < 0) return;
  finish_exchange(q);
  const int unit = std::exchange(reducing_, -1);
  Work& work = reductions_[static_cast<size_t>(unit)];
  work.join(q);
  grads_.release(unit);
  if (!last_micro_ || replicas_.size() == 1) return;
  work = replicas_.for_unit(unit).all_reduce(q, grads_.slice(unit));
  exchanging_ = unit;
}

void Parameters::finish_exchange(Queue& q) {
  if (exchanging_ >= 0) reductions_[static_cast<size_t>(std::exchange(exchanging_, -1))].join(q);
}

void Parameters::end_micro_batch(Queue& q) {
  finish_reduction(q);
  finish_exchange(q);
  if (last_micro_)
    for (Work& work : reductions_) work.join(q);
}

bool Parameters::shares_tied() const {
  return spec_.head == spec_.embedding && spec_.trainable(spec_.embedding) &&
         mesh_.pipe().ends().size() > 1;
}

void Parameters::end_gradients(Queue& q) {
  if (!shares_tied()) return;
  const bool sliced = sharding_.gradients == Hold::shard || sharding_.state == Hold::shard;
  Work sum =
      mesh_.pipe().ends().for_unit(0).all_reduce(q, sliced ? grads_.slice(0) : grads_.flat(0));
  sum.join(q);
}

void Parameters::release_weights(int unit) {
  if (--gathered_[static_cast<size_t>(unit)].users > 0 || sharding_.weights == Hold::whole) return;
  weights_.release(unit);
  frozen_.release(unit);
  quantized_.release(unit);
}

void Parameters::release(Queue&, int unit, Pass) {
  release_weights(unit);
  if (tied_head(unit)) release_weights(0);
}

void Parameters::end_update(Queue& q) {
  if (sharding_.state == Hold::whole || sharding_.weights == Hold::shard) return;
  for (int unit = 0; unit < spec_.units(); ++unit)
    if (has(unit) && !weights_.empty(unit))
      gathered_[static_cast<size_t>(unit)].weights =
          group_.for_unit(unit).all_gather(q, weights_.flat(unit), weights_.slice(unit));
}

void Parameters::settle(Queue& q) {
  for (Gathered& g : gathered_) g.weights.join(q);
}

void Parameters::end_step() {
  if (gradients_ != Gradients::in_step || sharding_.gradients == Hold::shard) return;
  for (int unit = 0; unit < spec_.units(); ++unit) grads_.release(unit);
}

Write Parameters::grad_write(int i) const {
  const auto param = static_cast<size_t>(i);
  const auto unit = static_cast<size_t>(spec_.params[param].unit);
  return written_whole_[param] && first_backward_[unit] ? Write::replace : Write::add;
}

}  // namespace capstan
