#include "data/tokenizer/tokenizer_spec.h"

#include "base/json_text.h"

namespace capstan {

using nlohmann::json;

Spec::Spec(const json& value, std::string_view text, std::string_view where)
    : value_(&value), text_(text), where_(where) {}

bool Spec::has(const char* key) const {
  if (!value_->is_object()) refuse("expected an object, found {}", shown(*value_));
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Spec Spec::at(const char* key) const {
  if (!has(key)) refuse("expected the key {}, which is missing", in_quotes(key));
  Spec part = *this;
  part.value_ = &*value_->find(key);
  if (!in_list_) part.path_.emplace_back(key);
  return part;
}

std::vector<Spec> Spec::elements() const {
  if (!value_->is_array()) refuse("expected a list, found {}", shown(*value_));
  std::vector<Spec> parts;
  for (size_t i = 0; i < value_->size(); ++i) {
    Spec part = *this;
    part.value_ = &(*value_)[i];
    part.in_list_ = true;
    part.element_ = fmt::format("{}[{}] ", element_, i);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string Spec::text(const char* key) const {
  const Spec part = at(key);
  if (!part.value().is_string())
    part.refuse("{}: expected a text, found {}", key, shown(part.value()));
  return part.value().get<std::string>();
}

bool Spec::flag(const char* key, bool if_missing) const {
  if (!has(key)) return if_missing;
  const Spec part = at(key);
  if (!part.value().is_boolean())
    part.refuse("{}: expected true or false, found {}", key, shown(part.value()));
  return part.value().get<bool>();
}

int64_t Spec::number(const char* key, int64_t largest) const {
  const Spec part = at(key);
  const json& v = part.value();
  if (!v.is_number_integer() || v < 0 || v > largest)
    part.refuse("{}: expected an integer from 0 to {}, found {}", key, largest, shown(v));
  return v.get<int64_t>();
}

std::string Spec::location() const {
  return location({});
}

std::string Spec::location(std::string_view key) const {
  std::vector<std::string_view> p(path_.begin(), path_.end());
  if (!key.empty() && !in_list_) p.push_back(key);
  switch (p.size()) {
    case 0: return json_location(text_, where_, {});
    case 1: return json_location(text_, where_, {p[0]});
    case 2: return json_location(text_, where_, {p[0], p[1]});
    default: return json_location(text_, where_, {p[0], p[1], p[2]});
  }
}

}  // namespace capstan
