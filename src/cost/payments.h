#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/need.h"
#include "cost/prices.h"

// What each place costs month by month: the arithmetic of `recommend`.
namespace capstan {

enum class Level : uint8_t { low, expected, high };

struct Payments {
  double at_once = 0;            // before the first hour
  std::vector<double> of_month;  // during each
  double at_end = 0;  // data that leave, and what is left of a week or year that was reserved

  double total() const;
  std::vector<double> curve() const;  // paid after 0, 1 … months
};

// Dollars for an hour of this many GPUs, none for 0.
using Hourly = std::function<double(int gpus)>;

// GPUs for the hours in which they work.
Payments by_the_hour(const Need& need, const Prices& prices, Level level, const Hourly& hourly);
// All hours until a multiple of `term` hours, at one price of a GPU-hour.
Payments reserved(const Need& need, const Prices& prices, Level level, double price, double term);

// Servers in a rack that is rented, or in the own room.
struct Owned {
  int gpus = 8;  // of each server
  double price = 0;
  double kilowatts = 0;
  bool own_room = false;

  int servers_for(int all_gpus) const { return (all_gpus + gpus - 1) / gpus; }
};
// At most `most` servers, which are bought when growth needs them; GPUs beyond are rented by the
// hour. `rents` says whether there are any such.
Payments owned(const Need& need, const Prices& prices, Level level, const Owned& server, int most,
               const Hourly& hourly, bool* rents = nullptr);

double dollars_of(const Dollars& dollars, Level level);

// capex / (cloud $/h × 730 × utilisation − opex). Infinity where owning never pays back.
double break_even_months(double capex, double cloud_per_hour, double utilisation,
                         double opex_per_month);

// The part of its time that what lies above `base` (0 to 1) of the peak works, if the whole works
// `utilisation` of it. A steady load needs all GPUs or none. Of a spiky one the part q of the time
// needs at most q^(1/utilisation − 1) of the peak, whose mean is the utilisation.
double busy_above(double base, double utilisation, bool spiky);

}  // namespace capstan
