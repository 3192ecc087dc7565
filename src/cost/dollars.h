#pragma once

#include <string>

namespace capstan {

// An amount that is known only within bounds: low <= expected <= high.
struct Dollars {
  double low = 0, expected = 0, high = 0;

  bool operator==(const Dollars&) const = default;
};

// "$0.42", "$13,981", "$336k", "$1.24M": four digits at least below $100,000.
std::string format_dollars(double dollars);
// "$1.08M", or "$1.08M ($0.93M to $1.24M)" where the bounds differ.
std::string format_dollars(const Dollars& dollars);

}  // namespace capstan
