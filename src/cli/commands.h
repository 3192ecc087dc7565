#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/stop_token.h"

namespace capstan::cli {

using Arguments = std::vector<std::string>;  // the arguments after the command's name

// Each command returns the exit code, or throws Error. Those with a token end by themselves when it
// is requested, and return 128 + its signal or throw Stopped.
int pretrain(const Arguments& arguments, const StopToken& stop);
int finetune_full(const Arguments& arguments, const StopToken& stop);
int finetune_lora(const Arguments& arguments, const StopToken& stop);
int demo(const Arguments& arguments, const StopToken& stop);
int download(const Arguments& arguments, const StopToken& stop);
int sync(const Arguments& arguments, const StopToken& stop);
// A signal ends the others at once, as it ends any program.
int plan(const Arguments& arguments);
int generate(const Arguments& arguments);
int chat(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int merge_lora(const Arguments& arguments);
int convert(const Arguments& arguments);
int completions(const Arguments& arguments);
int man(const Arguments& arguments);
int doctor(const Arguments& arguments);
int bench(const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  std::variant<int (*)(const Arguments&), int (*)(const Arguments&, const StopToken&)> run;
  bool by_ranks = false;  // several ranks run it together; of others, under mpirun, the first does

  bool stops_by_itself() const { return run.index() == 1; }
  int start(const Arguments& arguments, const StopToken& stop = {}) const {
    return stops_by_itself() ? std::get<1>(run)(arguments, stop) : std::get<0>(run)(arguments);
  }
};
std::span<const Command> commands();

}  // namespace capstan::cli
