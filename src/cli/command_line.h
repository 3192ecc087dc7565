#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "model/decoder.h"

namespace CLI {
class App;
}

namespace capstan::cli {

// The numbers that an option takes; infinity and NaN are none.
struct Range {
  double least = -INFINITY, most = INFINITY;
  bool shows_default = true;  // --help tells the value beforehand
};

// The options of a command, with our errors. CLI11 is in command_line.cpp alone: a file that
// includes it takes ten seconds to compile.
//
// A variable that is given here gets its value in parse, and must live until then. --help tells
// what it holds beforehand as the default, unless that is empty.
class CommandLine {
 public:
  // `usage` is the command with what may follow it, as "capstan plan [RECIPE.yaml]".
  CommandLine(std::string summary, std::string usage);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A word without a name, which must be given.
  void required(const char* name, std::string& value, const char* help);
  void option(const char* name, std::string& value, const char* help);
  void option(const char* name, int64_t& value, const char* help, Range range);
  void option(const char* name, uint64_t& value, const char* help, Range range);
  void option(const char* name, double& value, const char* help, Range range);
  void choice(const char* name, std::string& value, std::initializer_list<const char*> choices,
              const char* help);
  // May be given again; each value is added.
  void list(const char* name, std::vector<std::string>& values, const char* help,
            const char* group = nullptr);
  void flag(const char* name, bool& value, const char* help, const char* group = nullptr);
  // A flag that may say true or false.
  void truth(const char* name, bool& value, const char* help);
  // A key of a recipe: `set` gets its value, or "" where none follows.
  void key(const std::string& name, std::function<void(const std::string&)> set,
           const std::string& help, const std::string& group);

  // False when help was asked for and printed. Errors are Fault::usage; an option that does not
  // exist names the nearest.
  bool parse(const Arguments& arguments);

  struct Known {
    bool help = false;  // was asked for and printed
    std::string error;  // empty: none
    Arguments rest;     // what no option was given for, in order
  };
  Known parse_known(const Arguments& arguments);

 private:
  void refuse(const std::vector<std::string>& words) const;

  std::unique_ptr<CLI::App> app_;
};

// --max_new_tokens, --top_k, --top_p, --temperature, --seed.
void add_sampling(CommandLine& line, GenerateOptions& options);
// --precision, for a model that is used and not trained.
void add_precision(CommandLine& line, std::string& precision);
// --accelerator, for parse_accelerator.
void add_accelerator(CommandLine& line, std::string& accelerator,
                     const char* help = "what computes; auto is a GPU where there is one");

// Prints it to stdout. File names need not be UTF-8: what is not is replaced.
void print_json(const nlohmann::ordered_json& value);

}  // namespace capstan::cli
