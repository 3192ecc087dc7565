#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/version.h"

namespace capstan::cli {
namespace {

constexpr std::array kCommands = {
    Command{"pretrain", "train a model on text", pretrain},
    Command{"generate", "continue a prompt with a trained model", generate},
    Command{"demo", "watch a small model learn, from nothing, in a few minutes", demo},
};

constexpr const char* kExamples = R"(
examples:
  capstan demo
  capstan pretrain --data.train_data_path my_texts/ --train.max_steps 500
  capstan generate out/pretrain/final --prompt "Once upon a time"

capstan COMMAND --help tells the options of a command.
)";

std::string help() {
  std::string s =
      "capstan: train Llama-family language models\n\nusage: capstan COMMAND [options]\n\n";
  for (const Command& c : commands()) s += fmt::format("  {:<12}{}\n", c.name, c.summary);
  return s + kExamples;
}

int run(int argc, char** argv) {
  const Arguments words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    fmt::print("{}", help());
    return 0;
  }
  if (words[0] == "--version") {
    fmt::print("capstan {} ({}), devices: cpu, sim\n", CAPSTAN_VERSION, CAPSTAN_COMMIT);
    return 0;
  }
  std::string names;
  for (const Command& c : commands()) {
    if (words[0] == c.name) return c.run({words.begin() + 1, words.end()});
    names += (names.empty() ? "" : ", ") + std::string(c.name);
  }
  fail(Fault::usage, "'{}' is not a command; there are {}. 'capstan help' tells more", words[0],
       names);
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace capstan::cli

int main(int argc, char** argv) {
  try {
    return capstan::cli::run(argc, argv);
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "{}{}\n", e.fault() == capstan::Fault::bug ? "bug in capstan: " : "error: ",
               e.what());
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: the system has no memory left\n");
    return static_cast<int>(capstan::Fault::does_not_fit);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bug in capstan: {}\n", e.what());
    return static_cast<int>(capstan::Fault::bug);
  }
}
