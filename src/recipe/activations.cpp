#include "recipe/activations.h"

#include "recipe/scalars.h"

namespace capstan {
namespace {

constexpr std::string_view kAuto = "auto";

}  // namespace

std::optional<Activations> Activations::parse(std::string_view text) {
  if (text == kAuto) return Activations{.automatic = true};
  const size_t colon = text.find(':');
  const auto policy = value_named<Recompute>(text.substr(0, colon));
  if (!policy) return std::nullopt;
  if (colon == std::string_view::npos) return Activations{.policy = *policy};
  const auto blocks = whole_number_of(text.substr(colon + 1));
  if (*policy == Recompute::none || !blocks || *blocks < 1) return std::nullopt;
  return Activations{.policy = *policy, .blocks = blocks};
}

std::vector<std::string> Activations::choices() {
  std::vector<std::string> all;
  for (const auto& [policy, name] : NameTable<Recompute>::rows)
    all.push_back(std::string(name) + (policy == Recompute::none ? "" : "[:N]"));
  all.emplace_back(kAuto);
  return all;
}

std::string Activations::text() const {
  if (automatic) return std::string(kAuto);
  return blocks ? fmt::format("{}:{}", name_of(policy), *blocks) : std::string(name_of(policy));
}

}  // namespace capstan
