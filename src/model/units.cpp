#include "model/units.h"

namespace capstan {

Tensor slice(const Tensor& whole, const Range& range) {
  if (!whole) return {};
  return whole.reshape({whole.numel()}).rows(range.first, range.count);
}

UnitTensors::UnitTensors(const ModelSpec& spec, DType type, const std::vector<bool>& has,
                         Layout layout, Category category, const char* name)
    : type_(type),
      layout_(layout),
      category_(category),
      name_(name),
      units_(static_cast<size_t>(spec.units())),
      views_(spec.params.size()) {
  for (size_t i = 0; i < spec.params.size(); ++i) {
    if (!has[i]) continue;
    const Param& p = spec.params[i];
    Unit& unit = units_[static_cast<size_t>(p.unit)];
    unit.places.push_back({static_cast<int>(i), unit.size, p.shape});
    unit.size += aligned_to_buffers(p.shape.numel() * size_of(type)) / size_of(type);
  }
  for (Unit& unit : units_) unit.buffers.resize(layout == Layout::flat ? 1 : unit.places.size());
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

}  // namespace capstan
