#include "recipe/example_choice.h"

namespace capstan {

std::optional<ExampleChoice> ExampleChoice::parse(std::string_view text) {
  if (const auto kind = value_named<Kind>(text)) return ExampleChoice{.kind = *kind};
  const auto index = whole_number_of(text);
  if (!index || *index < 0) return std::nullopt;
  return ExampleChoice{.kind = Kind::at_index, .index = *index};
}

std::vector<std::string> ExampleChoice::choices() {
  const auto names = names_of<Kind>();
  return {names.begin(), names.end()};
}

std::string ExampleChoice::text() const {
  return kind == Kind::at_index ? std::to_string(index) : std::string(name_of(kind));
}

}  // namespace capstan
