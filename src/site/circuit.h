#pragma once

#include <span>
#include <string>
#include <string_view>

namespace capstan {

// Continuous loads may take 80% of what a breaker is rated for.
inline constexpr double kDerating = 0.8;

// What feeds one PDU (the outlets of a rack).
struct Circuit {
  std::string name;  // as the user gave it
  double volts = 208, amperes = 60;
  int phases = 3;  // or 1

  // Single phase V·I, three phases √3·V·I; times kDerating.
  double capacity_va() const;
  // "√3 × 208 V × 60 A × 0.8"
  std::string formula() const;
  // The plug that carries it; what no plug here does must be wired.
  std::string plug() const;
};

// "208x60x3" (volts, amperes, phases), or one of known_circuits() in any case of letters. Throws
// Fault::usage.
Circuit parse_circuit(std::string_view text);
std::span<const Circuit> known_circuits();

// The cable from a server to a PDU.
struct Cord {
  std::string_view name;
  double watts = 0;  // that it carries
};
// C13/C14 for what it carries, else C19/C20, of which a server may need several.
Cord cord_for(double server_watts);

}  // namespace capstan
