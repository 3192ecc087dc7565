#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/process_limits.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/prepare.h"
#include "cli/stop_signals.h"
#include "cli/version.h"
#include "comm/process_group.h"
#include "recipe/nearest.h"
#include "tensor/device.h"

namespace capstan::cli {
namespace {

constexpr std::array kCommands = {
    Command{"demo", "train a small model from scratch, in a few minutes", demo},
    Command{"download", "get a model from the Hugging Face Hub", download},
    Command{"plan", "check what a run needs before it starts", plan},
    Command{"finetune_full", "train all weights of a model on your data", finetune_full, true},
    Command{"finetune", "train small adapters for a frozen model (LoRA, QLoRA)", finetune_lora,
            true},
    Command{"finetune_lora", "same as finetune", finetune_lora, true},
    Command{"pretrain", "train a model on text", pretrain, true},
    Command{"generate", "answer or continue a prompt", generate},
    Command{"chat", "chat with a model", chat},
    Command{"evaluate", "loss and perplexity of a model on data", evaluate},
    Command{"merge_lora", "merge an adapter into its model", merge_lora},
    Command{"sync", "send what a run measured to its tracker", sync},
    Command{"doctor", "check this machine: what it offers for a run, and what is wrong with it",
            doctor},
    Command{"bench", "measure this machine, so that plan can predict the time of a run", bench,
            true},
    Command{"convert", "write a model in another type or in other files", convert},
    Command{"completions", "print completions for bash, zsh or fish", completions},
    Command{"man", "print the manual page", man},
};

constexpr const char* kExamples = R"(
examples:
  capstan demo
  capstan plan recipe.yaml --memory 80GiB
  capstan finetune_full --config recipe.yaml --data JSON --data.json_path my_data.json
  capstan chat out/finetune/full/final

'capstan COMMAND --help' lists the options of a command; 'capstan --version' prints the version.
)";

std::string help() {
  std::string s =
      "capstan: train Llama-family language models\n\nusage: capstan COMMAND [options]\n\n";
  for (const Command& c : commands()) s += fmt::format("  {:<16}{}\n", c.name, c.summary);
  return s + kExamples;
}

// LitGPT commands that Capstan does not have, and what to use instead.
constexpr std::pair<std::string_view, std::string_view> kInstead[] = {
    {"convert_to_litgpt", "; Hugging Face folders need no conversion"},
    {"convert_from_litgpt", "; checkpoints are already Hugging Face folders"},
    {"convert_pretrained_checkpoint", "; checkpoints need no conversion"},
    {"finetune_adapter", "; the only adapters are LoRA: capstan finetune"},
    {"finetune_adapter_v2", "; the only adapters are LoRA: capstan finetune"},
    {"serve", "; use 'capstan chat' to talk to a model, or serve its folder with vLLM"},
};

[[noreturn]] void refuse(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& c : commands()) names.emplace_back(c.name);
  std::string hint = did_you_mean(word, names);
  for (const auto& [name, instead] : kInstead)
    if (word == name) hint = instead;
  fail(Fault::usage, "'{}' is not a command{}. The commands are {}; see 'capstan help'", word, hint,
       fmt::join(names, ", "));
}

int run(int argc, char** argv, StopSignals& signals) {
  const Arguments words = take_arguments(argc, argv);
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    fmt::print("{}", help());
    return 0;
  }
  if (words[0] == "--version") {
    fmt::print("capstan {}, devices: cpu, {}sim\n", CAPSTAN_BUILD, kWithCuda ? "cuda, " : "");
    return 0;
  }
  require_room_to_compute();
  const bool is_first = launched_ranks().value_or(Ranks()).rank == 0;
  for (const Command& c : commands()) {
    if (words[0] != c.name) continue;
    if (!is_first && !c.by_ranks) return 0;
    if (!c.stops_by_itself()) signals.let_go();
    return c.start({words.begin() + 1, words.end()}, signals.token());
  }
  refuse(words[0]);
}

// A failed write (a full disk) must not look like success.
int run_and_flush(int argc, char** argv, StopSignals& signals) {
  const int code = run(argc, argv, signals);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (errno == EPIPE) return code;  // its reader has read enough: `capstan plan --help | head`
  require(written, Fault::file, "standard output: cannot write: {}",
          errno != 0 ? std::strerror(errno) : "some output was lost");
  return code;
}

int guarded(int argc, char** argv, StopSignals& signals) {
  try {
    return run_and_flush(argc, argv, signals);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    tell(failure);
    return failure.exit_code;
  }
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace capstan::cli

int main(int argc, char** argv) {
  capstan::cli::StopSignals signals;
  capstan::cli::prepare_process();
  return capstan::cli::guarded(argc, argv, signals);
}
