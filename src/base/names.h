#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

// The words that stand for values in recipes, on the command line and in messages. A type has one
// table of them, NameTable<T>::rows, and everything that reads, lists or prints the words walks it:
//
//   template <>
//   struct NameTable<Fruit> {
//     static constexpr Named<Fruit> rows[] = {{Fruit::apple, "apple"}, {Fruit::pear, "pear"}};
//   };
namespace capstan {

template <class T>
struct Named {
  T value;
  std::string_view name;
};

// The first row of a value is its name; further rows are other spellings of it.
template <class T>
struct NameTable;

template <class T>
concept HasNames = requires {
  NameTable<T>::rows;
};

template <HasNames T>
constexpr std::string_view name_of(const T& value) {
  for (const Named<T>& row : NameTable<T>::rows)
    if (row.value == value) return row.name;
  return "?";
}

// Nothing for a word that is not in the table. Case counts.
template <HasNames T>
constexpr std::optional<T> value_named(std::string_view name) {
  for (const Named<T>& row : NameTable<T>::rows)
    if (row.name == name) return row.value;
  return std::nullopt;
}

// All words of the table, in its order.
template <HasNames T>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (const Named<T>& row : NameTable<T>::rows) names.push_back(row.name);
  return names;
}

// Throws Fault::usage for a word that is not in the table, listing those that are; `key` is what
// the user calls the setting.
template <HasNames T>
T parse_named(std::string_view key, std::string_view name) {
  const auto value = value_named<T>(name);
  require(value.has_value(), Fault::usage, "{}: '{}' is not one of {}", key, name,
          fmt::join(names_of<T>(), ", "));
  return *value;
}

}  // namespace capstan
