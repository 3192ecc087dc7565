// Which rank counts and saves what, and the gradients of what several of the ranks that share each
// layer have.
#include <fmt/format.h>

#include <algorithm>

#include "model/parameter_ranges.h"
#include "model/parameters.h"
#include "model/saved_tensor.h"
#include "ops/elementwise.h"

namespace capstan {

void sort_by_param(std::vector<Range>& ranges) {
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const Range& a, const Range& b) { return a.param < b.param; });
}

std::vector<Range> cut_by_parts(const ModelSpec& spec, std::vector<Range> ranges) {
  if (spec.share.ranks().size == 1) return ranges;
  std::vector<Range> cut;
  for (const Range& r : ranges) {
    const Param& p = spec.params[static_cast<size_t>(r.param)];
    for (const Part& part : p.parts) {
      const Range of_part{r.param, part.first_row * p.columns(), part.rows * p.columns()};
      if (const Range some = overlap(of_part, r); some.count > 0) cut.push_back(some);
    }
  }
  return cut;
}

namespace {

int64_t rounded_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

const Part& part_of(const ModelSpec& spec, const Range& range) {
  return capstan::part_of(spec.params[static_cast<size_t>(range.param)], range);
}

}  // namespace

const ModelSpec& Parameters::spec_of(int rank) const {
  return specs_.empty() ? spec_ : specs_[static_cast<size_t>(mesh_.tensor_rank_of(rank))];
}

// Of the replicas, the first owns; of the stages that have a tied embedding, and of the ranks that
// have copies, too.
std::vector<Range> Parameters::owned_by(int rank) const {
  std::vector<Range> owned;
  const int stage = mesh_.stage_of(rank), slice = mesh_.data_rank_of(rank);
  const int share = mesh_.tensor_rank_of(rank);
  if (slice >= shards_.size()) return owned;
  const std::vector<bool>& units = stages_[static_cast<size_t>(stage)];
  const UnitTensors& layout = shares_.empty() ? weights_ : shares_[static_cast<size_t>(share)];
  for (int unit = 0; unit < spec_.units(); ++unit)
    if (units[static_cast<size_t>(unit)] && (unit > 0 || stage == 0))
      layout.add_ranges(owned, unit, slice);
  sort_by_param(owned);
  if (shares_.empty()) return owned;
  const ModelSpec& spec = spec_of(rank);
  owned = cut_by_parts(spec, std::move(owned));
  std::erase_if(owned, [&](const Range& r) { return part_of(spec, r).copies.first != share; });
  return owned;
}

void Parameters::make_copies(Arena& arena) {
  const Ranks ranks = spec_.share.ranks();
  if (ranks.size == 1) return;
  const Span sharing = spec_.share.attention.copies;
  const auto add = [&](const Communicator& group, int64_t copies, bool own_room) {
    Copies c{group, std::vector<std::vector<Range>>(static_cast<size_t>(spec_.units())), {}, {}};
    int64_t most = 0;
    for (const Range& r : all_trainable_)
      if (part_of(spec_, r).copies.count == copies)
        c.ranges[static_cast<size_t>(spec_.params[static_cast<size_t>(r.param)].unit)].push_back(r);
    for (const auto& unit : c.ranges) {
      int64_t count = 0;
      for (const Range& r : unit) count += r.count;
      most = std::max(most, count);
    }
    if (most == 0) return;
    const DType type = types().grad;
    c.sums =
        arena.make(Category::communication, type, {rounded_to(most, copies)}, "sums of copies");
    if (own_room) c.room = group.make_room(arena, c.sums->nbytes());
    copies_.push_back(std::move(c));
  };
  add(mesh_.tensor(), ranks.size, false);
  const int64_t kv_heads = spec_.config.kv_heads;
  if (ranks.size <= kv_heads || kv_heads == 1) return;
  // All ranks split off those with the same key heads; some may be alone.
  const int first = mesh_.all().rank() - ranks.rank + static_cast<int>(sharing.first);
  const Members same{.first = first, .count = static_cast<int>(sharing.count)};
  const Communicator group =
      mesh_.all().split(same, fmt::format("key heads from rank {}", first), Lane::tensor);
  if (sharing.count > 1) add(group, sharing.count, true);
}

Mesh::Digests Parameters::digests() const {
  Mesh::Digests all = mesh_.digests();
  for (const Copies& c : copies_)
    if (c.ranks.size() < mesh_.tensor().size())
      all.emplace_back(std::string(c.ranks.name()), c.ranks.digest());
  return all;
}

double Parameters::waited() const {
  double seconds = mesh_.waited();
  for (const Copies& c : copies_)
    if (c.ranks.size() < mesh_.tensor().size()) seconds += c.ranks.waited();
  return seconds;
}

int64_t Parameters::copied_bytes() const {
  int64_t most = 0;
  for (const Copies& c : copies_) most = std::max(most, c.sums->nbytes());
  return most;
}

void Parameters::sum_copies(Queue& q, int unit) {
  for (const Copies& c : copies_) {
    const auto& ranges = c.ranges[static_cast<size_t>(unit)];
    if (ranges.empty()) continue;
    int64_t count = 0;
    for (const Range& r : ranges) {
      copy(q, c.sums->rows(count, r.count), slice(grad(r.param), r));
      count += r.count;
    }
    Work sum =
        c.ranks.for_unit(unit).all_reduce(q, c.sums->rows(0, rounded_to(count, c.ranks.size())));
    sum.join(q);
    count = 0;
    for (const Range& r : ranges) {
      copy(q, slice(grad(r.param), r), c.sums->rows(count, r.count));
      count += r.count;
    }
  }
}

}  // namespace capstan
