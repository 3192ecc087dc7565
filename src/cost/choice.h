#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"
#include "cost/dollars.h"
#include "cost/need.h"
#include "cost/prices.h"

namespace capstan {

enum class Standing : uint8_t { suits, unsuited, ruled_out };
template <>
struct NameTable<Standing> {
  static constexpr Named<Standing> rows[] = {{Standing::suits, "suits"},
                                             {Standing::unsuited, "unsuited"},
                                             {Standing::ruled_out, "ruled out"}};
};

// One way to get the GPUs, with what it costs.
struct Choice {
  Place place = Place::on_demand;
  Standing standing = Standing::suits;
  std::string why;               // of a standing that is not `suits`
  std::optional<Dollars> total;  // of all months; empty: a price is missing
  Dollars at_once;               // paid before the first hour
  Dollars monthly;               // in the first month, besides
  std::vector<double> curve;  // expected dollars paid after 0, 1 … months; empty without a total
  // Months after which buying has cost no more than instances by the hour; infinity: never.
  std::optional<double> break_even;
  std::string ask;              // the price that is missing; empty: none
  std::optional<double> below;  // below this price it is the cheapest of those not ruled out
  // What a missing price would make of it at most: renting for longer never costs more per hour
  // than instances on demand. Ranked by this.
  std::optional<double> ceiling;
  int owned_gpus = 0;            // of a hybrid: the rest is rented by the hour
  std::optional<LeadTime> lead;  // until the GPUs can be used; none: not known
};

struct Where {
  std::vector<Choice> choices;       // the recommended one first; see cost/where.h
  std::vector<std::string> reasons;  // for the first
  std::string growth;                // how to begin, and where that leads

  const Choice& at(Place place) const;
  // The one that costs least of those that are not ruled out; null: no price is known.
  const Choice* cheapest() const;
};

std::string_view title_of(Place place);  // "on-demand instances"

}  // namespace capstan
