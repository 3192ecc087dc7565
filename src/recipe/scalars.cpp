#include "recipe/scalars.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace capstan {
namespace {

template <class T>
std::optional<T> parse(std::string_view text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (text[i] == '+' && i == 0 && text.size() > 1 && text[1] != '-' && text[1] != '+') continue;
    plain += text[i];
  }
  T value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> number_of(std::string_view text) {
  return parse<double>(text);
}

std::optional<int64_t> whole_number_of(std::string_view text) {
  if (const auto whole = parse<int64_t>(text)) return whole;
  const auto number = parse<double>(text);
  if (!number || std::trunc(*number) != *number || std::abs(*number) >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<bool> truth_of(std::string_view text) {
  std::string word(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

}  // namespace capstan
