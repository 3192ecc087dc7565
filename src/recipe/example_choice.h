#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"
#include "recipe/scalars.h"

namespace capstan {

// Which sample a validation shows an answer to: the first, a random one, or the one of that index.
struct ExampleChoice {
  enum class Kind : uint8_t { first, random, at_index };
  Kind kind = Kind::first;
  int64_t index = 0;  // of at_index

  static constexpr std::string_view kOtherwise = kWholeNumber;
  static std::optional<ExampleChoice> parse(std::string_view text);
  static std::vector<std::string> choices();
  std::string text() const;

  bool operator==(const ExampleChoice&) const = default;
};

template <>
struct NameTable<ExampleChoice::Kind> {
  static constexpr Named<ExampleChoice::Kind> rows[] = {{ExampleChoice::Kind::first, "first"},
                                                        {ExampleChoice::Kind::random, "random"}};
};

}  // namespace capstan
