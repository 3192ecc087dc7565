#pragma once

#include <limits>
#include <string>

#include "comm/communicator.h"

namespace capstan {

// What connects the ranks of a group. A collective that sends `bytes` from each rank in so many
// messages takes messages * seconds_per_message + bytes / bytes_per_second.
struct Network {
  double seconds_per_message = 0;
  double bytes_per_second = std::numeric_limits<double>::infinity();  // of one rank, each way
  bool room = false;  // sums need memory for every rank's slice, as between processes
  bool operator==(const Network&) const = default;
};

// A rank of a group that exists on `sim` alone, where all ranks do the same at the same time. Its
// collectives have a clock of their own: each begins when the one before it is complete and the
// queue has reached it; joining it lets the queue's clock wait. So what overlaps on the real
// devices overlaps here.
Communicator simulated(const Ranks& ranks, std::string name, const Network& network = {});

}  // namespace capstan
