#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/model_files.h"
#include "data/tokenizer.h"
#include "model/decoder.h"
#include "recipe/recipe.h"
#include "train/fit.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  std::string prompt = "What food do llamas eat?";
  int64_t num_samples = 1;
  std::string precision;
  GenerateOptions generate;
};

// As LitGPT: the folder as given, else under checkpoints/.
fs::path find_folder(const std::string& given) {
  std::error_code error;
  for (const fs::path& p : {fs::path(given), fs::path("checkpoints") / given})
    if (fs::is_directory(p, error)) return p;
  fail(Fault::file, "{}: no such folder, nor checkpoints/{}; give the folder of a checkpoint",
       given, given);
}

// The model and its decoder on one device. Made twice: on sim for the plan, then for real.
struct Session {
  Session(Queue& q, const ModelConfig& config, Precision precision, int64_t capacity)
      : params(q.arena(), make_spec(config), precision, Gradients::none),
        model(q, params, Recompute::none, capacity),
        decoder(q, model, capacity, std::min<int64_t>(capacity, 512)) {}

  Parameters params;
  Transformer model;
  Decoder decoder;
};

MemoryPlan plan(const ModelConfig& config, Precision precision, int64_t capacity) {
  Arena arena;
  Queue q(Device::sim, arena);
  Session session(q, config, precision, capacity);
  session.decoder.rehearse(q);
  return arena.plan();
}

void run(Options o) {
  const fs::path folder = find_folder(o.folder);
  const ModelConfig config = read_config(folder);
  require_byte_tokenizer(folder);
  const ByteTokenizer tokenizer;
  std::vector<int32_t> prompt = tokenizer.encode(o.prompt);
  prompt.insert(prompt.begin(), ByteTokenizer::kBos);
  o.generate.stop_ids = config.eos_ids;

  // bf16 would drop three bits of an f16.
  const auto precision = o.precision.empty() ? (config.dtype == DType::bf16 ? Precision::bf16_true
                                                                            : Precision::f32_true)
                                             : parse_precision(o.precision);
  require(precision != Precision::bf16_mixed, Fault::usage,
          "precision: bf16-mixed is for training; use bf16-true or 32-true");
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = config.max_positions - prompt_tokens;
  require(room > 0, Fault::usage,
          "--prompt: {} tokens leave no room in the model's {} positions; give a shorter one",
          prompt_tokens, config.max_positions);
  const bool cut = o.generate.max_new_tokens > room;
  if (cut) o.generate.max_new_tokens = room;
  const int64_t capacity = prompt_tokens + o.generate.max_new_tokens;
  const MemoryPlan memory = plan(config, precision, capacity);
  const int64_t available = available_memory();
  require(memory.total_bytes <= available, Fault::does_not_fit,
          "does not fit: needs {}, {} free. {} less",
          format_bytes(static_cast<double>(memory.total_bytes)),
          format_bytes(static_cast<double>(available)),
          precision == Precision::bf16_true
              ? "Fewer --max_new_tokens need"
              : "--precision bf16-true and fewer --max_new_tokens need");
  Arena arena(memory);
  Queue q(Device::cpu, arena);
  Session session(q, config, precision, capacity);
  load_parameters(q, session.params, folder);

  for (int64_t i = 0; i < o.num_samples; ++i) {
    o.generate.sample = static_cast<uint64_t>(i);
    const auto start = std::chrono::steady_clock::now();
    fmt::print("{}", o.prompt);
    const auto tokens = capstan::generate(q, session.decoder, prompt, o.generate, [&](int32_t t) {
      fmt::print("{}", tokenizer.decode({&t, 1}));
      std::fflush(stdout);
    });
    fmt::print("\n");
    std::fflush(stdout);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (cut && static_cast<int64_t>(tokens.size()) == room)
      log::warn("stopped at the last of the model's {} positions", config.max_positions);
    log::info("{} tokens in {:.2f} s, {:.1f} tok/s", tokens.size(), took.count(),
              static_cast<double>(tokens.size()) / took.count());
  }
}

// Numbers from `least` to `most`; infinity and NaN are none.
CLI::Validator number(double least, double most = INFINITY) {
  return {
      [=](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == 0 && std::isfinite(value) && value >= least && value <= most)
          return "";
        const std::string range = std::isfinite(most) ? fmt::format("from {} to {}", least, most)
                                                      : fmt::format("of {} or more", least);
        return fmt::format("expected a number {}, found '{}'", range, text);
      },
      ""};
}

// What CLI11 could not place.
void refuse(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string& word = words.front();
  if (!word.starts_with("-"))
    fail(Fault::usage, "'{}': not expected; a prompt of several words needs quotes", word);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string given = word.substr(0, word.find('='));
  fail(Fault::usage, "{}: no such option (did you mean {}?); 'capstan generate --help' tells them",
       given, nearest(given, views));
}

}  // namespace

int generate(const Arguments& arguments) {
  CLI::App app("Continues a prompt with a trained model; text on stdout, timings on stderr.",
               "capstan generate");
  app.allow_extras();
  Options o;
  auto& g = o.generate;
  app.add_option("checkpoint_dir", o.folder, "folder of the model")->required();
  app.add_option("--prompt", o.prompt, "text to continue")->capture_default_str();
  app.add_option("--num_samples", o.num_samples, "continuations")
      ->capture_default_str()
      ->check(number(1));
  app.add_option("--max_new_tokens", g.max_new_tokens, "length of each")
      ->capture_default_str()
      ->check(number(1));
  app.add_option("--top_k", g.sampling.top_k, "among the k most likely; 0: all")
      ->capture_default_str()
      ->check(number(0));
  app.add_option("--top_p", g.sampling.top_p, "among the likeliest that reach this probability")
      ->capture_default_str()
      ->check(number(0, 1));
  app.add_option("--temperature", g.sampling.temperature, "0: always the most likely")
      ->capture_default_str()
      ->check(number(0));
  app.add_option("--seed", g.seed, "of the draws")->capture_default_str()->check(number(0));
  app.add_option(
      "--precision", o.precision,
      "32-true or bf16-true; else bf16-true for a checkpoint in bf16, 32-true for others");
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& e) {
    fail(Fault::usage, "{}; 'capstan generate --help' tells the options", e.what());
  }
  refuse(app, app.remaining());
  run(o);
  return 0;
}

}  // namespace capstan::cli
