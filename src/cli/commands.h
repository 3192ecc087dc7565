#pragma once

#include <span>
#include <string>
#include <vector>

namespace capstan::cli {

using Arguments = std::vector<std::string>;  // the arguments after the command's name

// Each command returns the exit code, or throws Error.
int pretrain(const Arguments& arguments);
int finetune_full(const Arguments& arguments);
int finetune_lora(const Arguments& arguments);
int plan(const Arguments& arguments);
int generate(const Arguments& arguments);
int chat(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int merge_lora(const Arguments& arguments);
int convert(const Arguments& arguments);
int sync(const Arguments& arguments);
int download(const Arguments& arguments);
int completions(const Arguments& arguments);
int man(const Arguments& arguments);
int demo(const Arguments& arguments);
int doctor(const Arguments& arguments);
int bench(const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);
  bool by_ranks = false;  // several ranks run it together; of others, under mpirun, the first does
};
std::span<const Command> commands();

}  // namespace capstan::cli
