#pragma once

#include "cli/commands.h"

namespace capstan::cli {

// `capstan plan where`: what GPUs cost from each source, and which of them suits.
int plan_where(const Arguments& arguments);

}  // namespace capstan::cli
