#pragma once

#include <limits>
#include <string>

#include "comm/communicator.h"

namespace capstan {

// What connects the ranks of a group. A collective that sends `bytes` from each rank in so many
// messages takes messages * seconds_per_message + bytes / bytes_per_second.
//
// Of several machines there are two levels: neighbours, so many of all ranks, are on each machine,
// and what is said of messages and bytes holds within it. `across` has the same of what each rank
// has between machines. n ranks of a group, m of them on each of k machines, exchange slices of s
// bytes in one round (all_gather, reduce_scatter; two for all_reduce) in the longer of
//
//   (m - 1) * (seconds_per_message + k * s / bytes_per_second)           within each machine
//   (k - 1) * (across.seconds_per_message + s / across.bytes_per_second)     between them
//
// since first the ranks with the same place on their machine exchange theirs, over all cards of the
// machine at once, and what has arrived passes on within it meanwhile. all_to_all sends each of the
// other ranks what is its own: m - 1 slices within, n - m across. k = 1 is the formula of one
// level.
struct Network {
  double seconds_per_message = 0;
  double bytes_per_second = std::numeric_limits<double>::infinity();  // of one rank, each way
  bool room = false;          // sums need memory for every rank's slice, as between processes
  int ranks_per_machine = 0;  // 0: one level
  struct Across {
    double seconds_per_message = 0;
    double bytes_per_second = std::numeric_limits<double>::infinity();  // of one rank, each way
    bool operator==(const Across&) const = default;
  } across = {};
  bool operator==(const Network&) const = default;

  // Seconds for `rounds` rounds in which each of these ranks (numbers among all ranks) sends every
  // other one a slice of so many bytes.
  double exchange_seconds(const Members& members, double slice_bytes, int rounds) const;
  // The same if no slice goes on: each rank has another one for each.
  double personal_seconds(const Members& members, double slice_bytes) const;
  // One message from one rank to another.
  double pass_seconds(int from, int to, double bytes) const;
};

// A rank of a group that exists on `sim` alone, where all ranks do the same at the same time. Its
// collectives have a clock of their own: each begins when the one before it is complete and the
// queue has reached it; joining it lets the queue's clock wait. So what overlaps on the real
// devices overlaps here.
Communicator simulated(const Ranks& ranks, std::string name, const Network& network = {});

}  // namespace capstan
