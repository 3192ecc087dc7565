#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "model/decoder.h"

namespace CLI {
class App;
}

namespace capstan::cli {

// The numbers that an option accepts; never infinity or NaN.
struct Range {
  double least = -INFINITY, most = INFINITY;
  bool shows_default = true;  // --help shows the default value
};

// An option or argument as completions and the manual show it.
struct OptionInfo {
  std::string name;  // "--seed"; an argument has no dashes
  std::string help;
  bool takes_value = true;
  std::vector<std::string> choices = {};  // words that its value may be
};
struct CommandInfo {
  std::string usage, summary;
  std::vector<OptionInfo> options;
};

// The options of a command, with our error messages. Only command_line.cpp includes CLI11, which
// takes ten seconds to compile.
//
// parse writes to the variables given here, so they must live until then. --help shows their
// initial value as the default, unless it is empty.
class CommandLine {
 public:
  // `usage` is the command and its arguments, such as "capstan plan [RECIPE.yaml]".
  CommandLine(std::string summary, std::string usage);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A required positional argument.
  void required(const char* name, std::string& value, const char* help);
  // A positional argument that may be missing.
  void positional(const char* name, std::string& value, const char* help);
  void option(const char* name, std::string& value, const char* help);
  void option(const char* name, std::optional<std::string>& value, const char* help);
  void option(const char* name, int64_t& value, const char* help, Range range);
  void option(const char* name, uint64_t& value, const char* help, Range range);
  void option(const char* name, double& value, const char* help, Range range);
  void choice(const char* name, std::string& value, const std::vector<std::string_view>& choices,
              const char* help);
  // May be given several times; each value is appended.
  void list(const char* name, std::vector<std::string>& values, const char* help,
            const char* group = nullptr);
  void flag(const char* name, bool& value, const char* help, const char* group = nullptr);
  // A flag that optionally takes true or false.
  void truth(const char* name, bool& value, const char* help);
  // A key of a recipe: `set` gets its value, or "" if none follows.
  void key(const std::string& name, std::function<void(const std::string&)> set,
           const std::string& help, const std::string& group,
           const std::vector<std::string>& choices = {});

  // Returns false if help was requested and printed. Errors are Fault::usage; for an unknown option
  // the message suggests the nearest one.
  bool parse(const Arguments& arguments);

  struct Known {
    bool help = false;  // requested and printed
    std::string error;  // empty: none
    Arguments rest;     // arguments that matched no option, in order
  };
  Known parse_known(const Arguments& arguments);

  // What a command's CommandLine has, without running the command.
  static CommandInfo describe(const Command& command);

 private:
  void refuse(const std::vector<std::string>& words) const;
  void note(const char* name, const std::string& help, bool takes_value = true,
            const std::vector<std::string>& choices = {});

  CommandInfo info_;

  std::unique_ptr<CLI::App> app_;
};

// --max_new_tokens, --top_k, --top_p, --temperature, --seed.
void add_sampling(CommandLine& line, GenerateOptions& options);
// --precision and --matmul_precision, for inference.
struct PrecisionWords {
  std::string precision, matmul = "high";
  bool tf32() const { return matmul == "high"; }
};
void add_precision(CommandLine& line, PrecisionWords& words);
// --accelerator, for parse_accelerator.
void add_accelerator(CommandLine& line, std::string& accelerator,
                     const char* help = "device to compute on; auto: a GPU if there is one");

// Prints to stdout. File names need not be UTF-8: invalid bytes are replaced.
void print_json(const nlohmann::ordered_json& value);

}  // namespace capstan::cli
