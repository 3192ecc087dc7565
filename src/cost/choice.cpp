#include "cost/choice.h"

#include <algorithm>

#include "base/error.h"

namespace capstan {

std::string_view title_of(Place place) {
  switch (place) {
    case Place::on_demand: return "on-demand instances";
    case Place::cluster: return "cluster, by the week";
    case Place::private_cloud: return "private cloud, by the year";
    case Place::colocation: return "own servers, colocated";
    case Place::own_room: return "own servers, own room";
    case Place::hybrid: return "hybrid, own and rented";
  }
  return "?";
}

const Choice& Where::at(Place place) const {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const Choice& c) { return c.place == place; });
  require(found != choices.end(), Fault::bug, "where: no choice {}", name_of(place));
  return *found;
}

const Choice* Where::cheapest() const {
  const Choice* best = nullptr;
  for (const Choice& c : choices)
    if (c.total && c.standing != Standing::ruled_out &&
        (best == nullptr || c.total->expected < best->total->expected))
      best = &c;
  return best;
}

}  // namespace capstan
