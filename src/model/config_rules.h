#pragma once

#include <optional>
#include <string>

#include "model/config.h"

namespace capstan {

// What is wrong with a config: the key, as config.json has it, and what was expected and found.
struct ConfigProblem {
  std::string key;  // nested keys with a dot: "rope_scaling.factor"
  std::string message;
};

// The first rule that the config breaks, if any: the rules behind check_config and parse_config.
std::optional<ConfigProblem> find_problem(const ModelConfig& config);

}  // namespace capstan
