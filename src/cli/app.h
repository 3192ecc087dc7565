#pragma once

#include <CLI/CLI.hpp>
#include <cmath>

#include "cli/commands.h"
#include "model/decoder.h"

// What the commands without a recipe share: CLI11 with our errors.
namespace capstan::cli {

// Parses all arguments. Errors are Fault::usage; an option that does not exist names the nearest.
// False when help was asked for and printed.
bool parse(CLI::App& app, const Arguments& arguments);

// Numbers from `least` to `most`; infinity and NaN are none.
CLI::Validator number(double least, double most = INFINITY);

// --max_new_tokens, --top_k, --top_p, --temperature, --seed.
void add_sampling(CLI::App& app, GenerateOptions& options);
// --precision, for a model that is used and not trained.
void add_precision(CLI::App& app, std::string& precision);
// --accelerator, for parse_accelerator.
void add_accelerator(CLI::App& app, std::string& accelerator);

}  // namespace capstan::cli
