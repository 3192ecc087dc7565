#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "cli/command_line.h"
#include "cli/text_model.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

struct GenerateArguments {
  std::string folder, base, quantize;
  std::string prompt = "What food do llamas eat?";
  std::string prompt_style;
  int64_t num_samples = 1;
  PrecisionWords precision;
  std::string accelerator = "auto";
  GenerateOptions generate;
};

void run(GenerateArguments o) {
  TextModel text(find_model(o.folder, o.base, o.quantize), o.prompt_style);
  const std::vector<int32_t> prompt = text.prompt_tokens(o.prompt);
  const int64_t positions = text.config().max_positions;
  const int64_t max_new = positions - std::ssize(prompt);
  require(max_new > 0, Fault::usage,
          "--prompt: {} {} no room in the model's {}; give a shorter one",
          count(std::ssize(prompt), "token"), prompt.size() == 1 ? "leaves" : "leave",
          count(positions, "position"));
  const bool cut = o.generate.max_new_tokens > max_new;
  if (cut) o.generate.max_new_tokens = max_new;
  text.set_stops(o.generate);
  text.load(parse_accelerator(o.accelerator), o.precision,
            std::ssize(prompt) + o.generate.max_new_tokens);

  for (int64_t i = 0; i < o.num_samples; ++i) {
    o.generate.sample = static_cast<uint64_t>(i);
    const auto start = std::chrono::steady_clock::now();
    put_text(o.prompt);
    if (!text.is_plain()) fmt::print("\n\n");
    const auto tokens = text.stream(prompt, o.generate);
    fmt::print("\n");
    std::fflush(stdout);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (cut && std::ssize(tokens) == max_new)
      log::warn("stopped at the end of the model's {}", count(positions, "position"));
    log::info("{} in {:.2f} s, {:.1f} tok/s", count(std::ssize(tokens), "token"), took.count(),
              static_cast<double>(tokens.size()) / took.count());
  }
}

}  // namespace

int generate(const Arguments& arguments) {
  CommandLine line("Answers or continues a prompt. Text goes to stdout, timings to stderr.",
                   "capstan generate");
  GenerateArguments o;
  line.required("checkpoint_dir", o.folder, "folder of the model or of an adapter");
  line.option("--base_model", o.base,
              "folder of the adapter's base model (default: the one the adapter names)");
  line.option("--prompt", o.prompt, "text to answer or continue");
  line.option("--prompt_style", o.prompt_style,
              "prompt style or chat template (default: the folder's prompt_style.yaml, chat "
              "template, or name)");
  line.option("--num_samples", o.num_samples, "number of answers", {1});
  add_sampling(line, o.generate);
  add_precision(line, o.precision);
  add_quantize(line, o.quantize);
  add_accelerator(line, o.accelerator);
  if (!line.parse(arguments)) return 0;
  run(o);
  return 0;
}

}  // namespace capstan::cli
