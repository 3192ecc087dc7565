#pragma once

#include "cli/commands.h"

namespace capstan::cli {

// `capstan bench comm`: what connects the ranks of this machine, or of those that mpirun started,
// and on a CPU what each of them has of it.
int bench_comm(const Arguments& arguments);

}  // namespace capstan::cli
