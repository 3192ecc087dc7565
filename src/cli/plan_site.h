#pragma once

#include "cli/commands.h"

namespace capstan::cli {

// `capstan plan site`: power, network, storage and racks for GPUs that one is going to have.
int plan_site(const Arguments& arguments);

}  // namespace capstan::cli
