#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/sizes.h"
#include "comm/communicator.h"
#include "comm/simulated.h"
#include "plan/calibration.h"

// `capstan bench comm`: measures the collectives of a group, and derives what connects its ranks.
// On a CPU, also the steps of `capstan bench`, which all ranks take at once.
namespace capstan {

struct CommRow {
  std::string op;
  int ranks = 0;
  int64_t bytes = 0;      // of the whole tensor
  double seconds = 0;     // median
  double sent_bytes = 0;  // by each rank
  double rate() const { return sent_bytes / seconds; }
};

struct CommResult {
  std::vector<CommRow> rows;
  // By number of ranks, from the ops that do not compute: of one machine, and of several.
  std::map<int, Network> networks, networks_across;
  int ranks_on_machine = 1;  // of rank 0's
  // Of ranks on CPUs, while all of them compute: of the rank that was the slowest. Without
  // precisions of which not every step fits, and if rank 0's machine has no network that was
  // measured.
  PrecisionCosts together;
  // The highest rate at which a rank sent: a ring cannot be faster.
  double link_bytes_per_second = 0;
};

struct CommSizes {
  std::vector<int64_t> bytes;
  double seconds = 0.2;          // for each collective of each size
  std::vector<BenchStep> steps;  // of ranks on CPUs
  double step_seconds = 0.8;     // for each of them
};
CommSizes comm_sizes(bool quick);

// All ranks call it, with a queue and an arena each; all get the same result. Group sizes are those
// that divide the number of ranks; groups of one size measure at the same time. `begin` is called
// before each measurement.
using CommProgress = std::function<void(const std::string& what, int64_t number, int64_t of)>;
CommResult bench_comm(Queue& q, const Communicator& group, const CommSizes& sizes,
                      const CommProgress& begin);

// Adds it to the calibration of what a rank computes with.
void add_to(Calibration& calibration, const CommResult& result);

// The seconds that a ring would need at the rate of the link.
double ring_limit(const CommRow& row, const CommResult& result);

// A printable table. With what the same steps cost on one rank alone, how much longer they take on
// all at once.
std::string comm_table(const CommResult& result, const PrecisionCosts& alone = {});

}  // namespace capstan
