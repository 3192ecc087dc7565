#pragma once

#include "cost/choice.h"
#include "cost/need.h"
#include "cost/prices.h"

// Where GPUs should come from: rented, owned, or both.
namespace capstan {

// Ranks the places by standing, then by total dollars (a ceiling where the price is to be asked),
// those without either last. The standing follows from the need and from which prices are given,
// not from their amounts, months or utilisation, so that a longer time never costs less (but for
// hybrids, see below):
//
// - sovereign data rule out on-demand, clusters and hybrids; without a room, own_room is ruled out;
// - on-demand does not suit 16 GPUs or more, unless the load is spiky: no fast network is between
//   its instances, and few are free at once;
// - a cluster, reserved by the week, suits 16 to 512 GPUs, and a private cloud, for whole years,
//   512 to 2048, or any number for which a price was given;
// - GPUs that come later than they are needed, and terms that are longer than may be committed to,
//   are ruled out; what may come too late, or at a time that nobody knows, does not suit;
// - of hybrids the split that costs least is taken; if it rents nothing it is colocation, or the
//   own room, and does not suit.
//
// On-demand pays for hours of work, the others for all hours; power of own machines is counted at
// its maximum. Servers are bought when growth needs them, and are worth nothing at the end.
Where recommend(const Need& need, const Prices& prices);

}  // namespace capstan
