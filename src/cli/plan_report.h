#pragma once

#include <string>

#include "cli/plan_answers.h"

// What `capstan plan` prints.
namespace capstan::cli {

// `command`: as it was typed. `timeline`: of one simulated step, for pages; may be null.
std::string plan_json(const Planned& p, const Recipe& recipe, const Answers& answers,
                      const std::string& command, const StepTrace* timeline);
void print_plan_text(const Planned& p, const Recipe& recipe, const Answers& answers);

}  // namespace capstan::cli
