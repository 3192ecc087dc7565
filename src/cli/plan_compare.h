#pragma once

#include "cli/commands.h"
#include "cli/plan_options.h"

// `capstan plan --compare`: time and memory of several settings side by side.
namespace capstan::cli {

// `words`: of all settings, as settings_of takes them apart. Returns the exit code: 3 if none fits.
int plan_compare(const PlanOptions& options, const Arguments& words);

}  // namespace capstan::cli
