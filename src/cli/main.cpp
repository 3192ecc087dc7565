#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/process_limits.h"
#include "base/visible.h"
#include "cli/commands.h"
#include "cli/prepare.h"
#include "cli/version.h"
#include "recipe/recipe.h"
#include "tensor/device.h"

namespace capstan::cli {
namespace {

constexpr std::array kCommands = {
    Command{"demo", "watch a small model learn, from nothing, in a few minutes", demo},
    Command{"plan", "what a run needs, before it starts", plan},
    Command{"finetune_full", "train all weights of a model on your data", finetune_full},
    Command{"finetune", "train small adapters beside a frozen model (LoRA, QLoRA)", finetune_lora},
    Command{"finetune_lora", "the same", finetune_lora},
    Command{"pretrain", "train a model on text", pretrain},
    Command{"generate", "answer or continue a prompt", generate},
    Command{"chat", "talk with a model", chat},
    Command{"evaluate", "loss and perplexity of a model on data", evaluate},
    Command{"merge_lora", "fold an adapter into its model", merge_lora},
    Command{"doctor", "what this machine can do for a run, and what is wrong with it", doctor},
    Command{"bench", "measure this machine, so that plan can tell the time of a run", bench},
    Command{"convert", "write a model in another type, or in other files", convert},
};

constexpr const char* kExamples = R"(
examples:
  capstan demo
  capstan plan recipe.yaml --memory 80GiB
  capstan finetune_full --config recipe.yaml --data JSON --data.json_path my_data.json
  capstan chat out/finetune/full/final

capstan COMMAND --help tells the options of a command, capstan --version what this program is.
)";

std::string help() {
  std::string s =
      "capstan: train Llama-family language models\n\nusage: capstan COMMAND [options]\n\n";
  for (const Command& c : commands()) s += fmt::format("  {:<16}{}\n", c.name, c.summary);
  return s + kExamples;
}

// Of several lines, those after the first begin below it.
void print_error(std::string_view who, std::string message) {
  for (size_t i = 0; (i = message.find('\n', i)) != std::string::npos; i += 8)
    message.insert(i + 1, "       ");
  // Not by fmt, which throws where it cannot write: there is nobody left to tell.
  std::fputs(fmt::format("{}{}\n", who, visible(message)).c_str(), stderr);
}

// LitGPT's commands that are not here, with what to do instead.
constexpr std::pair<std::string_view, std::string_view> kInstead[] = {
    {"download",
     "; nothing is downloaded: 'hf download NAME --local-dir checkpoints/NAME' does it"},
    {"convert_to_litgpt", "; Hugging Face folders are read as they are"},
    {"convert_from_litgpt", "; checkpoints are Hugging Face folders already"},
    {"convert_pretrained_checkpoint", "; checkpoints can be used as they are"},
    {"finetune_adapter", "; adapters are LoRA's: capstan finetune"},
    {"finetune_adapter_v2", "; adapters are LoRA's: capstan finetune"},
    {"serve", "; 'capstan chat' talks with a model, and vLLM serves its folder"},
};

[[noreturn]] void refuse(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& c : commands()) names.emplace_back(c.name);
  std::string hint = did_you_mean(word, names);
  for (const auto& [name, instead] : kInstead)
    if (word == name) hint = instead;
  fail(Fault::usage, "'{}' is not a command{}. There are {}; 'capstan help' tells more", word, hint,
       fmt::join(names, ", "));
}

int run(int argc, char** argv) {
  const Arguments words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    fmt::print("{}", help());
    return 0;
  }
  if (words[0] == "--version") {
    fmt::print("capstan {}, devices: cpu, {}sim\n", CAPSTAN_BUILD, kWithCuda ? "cuda, " : "");
    return 0;
  }
  require_room_to_compute();
  for (const Command& c : commands())
    if (words[0] == c.name) return c.run({words.begin() + 1, words.end()});
  refuse(words[0]);
}

// What was printed but could not be written (a full disk) must not look like success.
int run_and_flush(int argc, char** argv) {
  const int code = run(argc, argv);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  require(written, Fault::file, "standard output: cannot write: {}",
          errno != 0 ? std::strerror(errno) : "some of it was lost");
  return code;
}

int guarded(int argc, char** argv) {
  try {
    return run_and_flush(argc, argv);
  } catch (const Error& e) {
    print_error(e.fault() == Fault::bug ? "bug in capstan: " : "error: ", e.what());
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    print_error("error: ", "the system has no memory left");
    return static_cast<int>(Fault::does_not_fit);
  } catch (const std::system_error& e) {  // of std::filesystem, and of writing to a closed stdout
    if (std::ferror(stdout) != 0)
      print_error("error: standard output: cannot write: ", e.code().message());
    else
      print_error("error: ", e.what());
    return static_cast<int>(Fault::file);
  } catch (const std::exception& e) {
    print_error("bug in capstan: ", e.what());
    return static_cast<int>(Fault::bug);
  }
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace capstan::cli

int main(int argc, char** argv) {
  capstan::cli::prepare_process(argv);
  return capstan::cli::guarded(argc, argv);
}
