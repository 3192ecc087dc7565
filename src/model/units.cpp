#include "model/units.h"

#include <algorithm>

namespace capstan {
namespace {

// Parameters and slices begin at multiples of it, in values: blocks of 8-bit moments, and enough
// bytes for aligned accesses.
constexpr int64_t kSliceGrain = 256;

int64_t rounded_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

Tensor slice(const Tensor& whole, const Range& range) {
  if (!whole) return {};
  return whole.reshape({whole.numel()}).rows(range.first, range.count);
}

UnitTensors::UnitTensors(const ModelSpec& spec, DType type, const std::vector<bool>& has,
                         Layout layout, Category category, const char* name, const Ranks& ranks,
                         int pieces)
    : type_(type),
      layout_(ranks.size > 1 ? Layout::flat : layout),
      category_(category),
      name_(name),
      ranks_(ranks),
      units_(static_cast<size_t>(spec.units())),
      views_(spec.params.size()),
      unit_of_(spec.params.size(), -1),
      place_of_(spec.params.size(), -1) {
  for (size_t i = 0; i < spec.params.size(); ++i) {
    if (!has[i]) continue;
    const Param& p = spec.params[i];
    Unit& unit = units_[static_cast<size_t>(p.unit)];
    unit_of_[i] = p.unit;
    place_of_[i] = static_cast<int>(unit.places.size());
    unit.places.push_back({static_cast<int>(i), unit.size, p.shape});
    unit.size += padded(p.shape.numel());
  }
  for (Unit& unit : units_) {
    unit.buffers.resize(layout_ == Layout::flat ? 1 : unit.places.size());
    if (ranks.size > 1) unit.size = rounded_up(unit.size, ranks.size * pieces * kSliceGrain);
  }
}

int64_t UnitTensors::padded(int64_t values) const {
  if (ranks_.size > 1) return rounded_up(values, kSliceGrain);
  return aligned_to_buffers(values * size_of(type_)) / size_of(type_);
}

bool UnitTensors::hold(Arena& arena, int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (u.places.empty() || u.held) return false;
  u.held = true;
  const bool flat = layout_ == Layout::flat;
  if (flat) u.buffers[0] = arena.make(category_, type_, {u.size}, name_);
  for (size_t i = 0; i < u.places.size(); ++i) {
    const Place& place = u.places[i];
    if (!flat) u.buffers[i] = arena.make(category_, type_, place.shape, name_);
    views_[static_cast<size_t>(place.param)] =
        flat ? u.buffers[0]->rows(place.first, place.shape.numel()).reshape(place.shape)
             : *u.buffers[i];
  }
  return true;
}

void UnitTensors::release(int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  for (const Place& place : u.places) views_[static_cast<size_t>(place.param)] = Tensor();
  for (Buffer& buffer : u.buffers) buffer.release();
  u.held = false;
}

void UnitTensors::hold_slice(Arena& arena, int unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (!u.places.empty()) u.slice = arena.make(category_, type_, {slice_size(u)}, name_);
}

Tensor UnitTensors::slice(int unit) const {
  const Unit& u = at(unit);
  return u.slice ? *u.slice : u.buffers[0]->rows(slice_begin(u), slice_size(u));
}

Tensor UnitTensors::values(const Range& range) const {
  const auto param = static_cast<size_t>(range.param);
  if (unit_of_[param] < 0) return {};
  const Unit& u = at(unit_of_[param]);
  if (!u.slice) return capstan::slice(of(range.param), range);
  const Place& place = u.places[static_cast<size_t>(place_of_[param])];
  return u.slice->rows(place.first + range.first - slice_begin(u), range.count);
}

void UnitTensors::add_ranges(std::vector<Range>& to, int unit) const {
  add_ranges(to, at(unit), 0, at(unit).size);
}

void UnitTensors::add_ranges(std::vector<Range>& to, int unit, int rank) const {
  const int64_t each = slice_size(at(unit));
  add_ranges(to, at(unit), rank * each, (rank + 1) * each);
}

void UnitTensors::add_ranges(std::vector<Range>& to, const Unit& unit, int64_t begin, int64_t end) {
  for (const Place& place : unit.places) {
    const int64_t first = std::max(begin, place.first),
                  last = std::min(end, place.first + place.shape.numel());
    if (first < last) to.push_back({place.param, first - place.first, last - first});
  }
}

}  // namespace capstan
