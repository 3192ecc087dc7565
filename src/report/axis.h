#pragma once

#include <string>
#include <vector>

namespace capstan {

// A scale with round ticks: 1, 2 or 5 times a power of ten apart.
struct Axis {
  double low = 0, high = 1, step = 1;

  std::vector<double> ticks() const;     // from low to high, multiples of step
  std::string label(double tick) const;  // "0.5", "20k", "1.5e-4"
  double fraction(double value) const { return (value - low) / (high - low); }
};

// Covers finite values from low to high (at most 1e30 in magnitude) with about `count` ticks.
// `snug` keeps the ends as given; otherwise they move out to the next tick. If all values are
// equal, the scale extends to both sides. `whole`: ticks at whole numbers only.
Axis make_axis(double low, double high, int count, bool snug, bool whole);

}  // namespace capstan
