#include "site/circuit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace capstan {
namespace {

constexpr Cord kSmallCord = {"C13/C14 (15 A)", 2500}, kLargeCord = {"C19/C20 (20 A)", 3200};
constexpr double kMostAmperes = 60;  // of IEC 60309 plugs that racks have

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  std::vector<std::string> names;
  for (const Circuit& known : known_circuits()) names.push_back(known.name);
  fail(Fault::usage,
       "circuit: {}, found '{}'; give VOLTSxAMPERESxPHASES, such as 208x60x3, or one of {}", why,
       text, fmt::join(names, ", "));
}

double number_in(std::string_view part, double most, std::string_view what, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size() || !(value >= 1 && value <= most))
    refuse(text, fmt::format("expected 1 to {} {}", most, what));
  return value;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

double Circuit::capacity_va() const {
  return (phases == 3 ? std::sqrt(3.0) : 1.0) * volts * amperes * kDerating;
}

std::string Circuit::formula() const {
  return fmt::format("{}{:g} V × {:g} A × {:g}", phases == 3 ? "√3 × " : "", volts, amperes,
                     kDerating);
}

std::string Circuit::plug() const {
  const bool low = volts <= 250;
  if (low && phases == 1 && amperes <= 15) return "C13/C14 (15 A)";
  if (low && phases == 1 && amperes <= 20) return "C19/C20 (20 A)";
  if (low && volts >= 200 && phases == 3 && amperes <= 30) return "L15-30P (30 A)";
  if (low && volts >= 200 && amperes <= kMostAmperes) return "IEC 60309 blue (60 A, 200-250 V)";
  // Red begins at 380 V, so that it takes the 400 V of Europe.
  if (volts >= 380 && volts <= 480 && amperes <= kMostAmperes)
    return "IEC 60309 red (60 A, above 400 V)";
  return "none of the usual ones: an electrician wires it";
}

Circuit parse_circuit(std::string_view text) {
  const std::string name = lower(text);
  for (const Circuit& known : known_circuits())
    if (known.name == name) return known;
  std::vector<std::string_view> parts;
  for (std::string_view rest = name;;) {
    const size_t x = rest.find('x');
    parts.push_back(rest.substr(0, x));
    if (x == std::string_view::npos) break;
    rest.remove_prefix(x + 1);
  }
  if (parts.size() == 2)
    refuse(text, fmt::format("expected the number of phases too ({0}x1 or {0}x3)", name));
  if (parts.size() != 3) refuse(text, "expected volts, amperes and phases");
  Circuit c{name, number_in(parts[0], 1000, "volts", text),
            number_in(parts[1], 1000, "amperes", text), 1};
  if (parts[2] != "1" && parts[2] != "3") refuse(text, "expected 1 or 3 phases");
  c.phases = parts[2] == "3" ? 3 : 1;
  return c;
}

std::span<const Circuit> known_circuits() {
  static const std::array<Circuit, 3> circuits = {
      {{"l15-30", 208, 30, 3}, {"208x60", 208, 60, 3}, {"415x60", 415, 60, 3}}};
  return circuits;
}

Cord cord_for(double server_watts) {
  return server_watts <= kSmallCord.watts ? kSmallCord : kLargeCord;
}

}  // namespace capstan
