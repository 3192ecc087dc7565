#include "cli/demo_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/shell_words.h"
#include "cli/stop_signals.h"

namespace capstan::cli {
namespace {

constexpr size_t kAsked = 200, kShown = 8;

std::string first_line(const std::string& prompt) {
  return prompt.substr(0, prompt.find('\n'));
}

std::string answer(TrainingRun& run, const std::string& prompt) {
  const Tokenizer& tokenizer = *run.inputs().tokenizer;
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  ids.insert(ids.begin(), *tokenizer.bos());
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.sampling.temperature = 0;
  options.stop_ids = {tokenizer.eos()};
  return tokenizer.decode(capstan::generate(run.queue(), *run.trainer().decoder(), ids, options));
}

// Nothing if it is interrupted.
void ask(TrainingRun& run, std::span<const Example> asked, const char* when,
         const StopToken& stop) {
  const auto right = std::count_if(asked.begin(), asked.end(), [&](const Example& e) {
    return !stop.requested() && answer(run, e.prompt) == e.response;
  });
  if (stop.requested()) return;
  log::say("{:<17}{} of {} held-out tasks answered exactly ({:.0f}%)", when, right, asked.size(),
           100.0 * static_cast<double>(right) / static_cast<double>(asked.size()));
}

void show_samples(TrainingRun& run, std::span<const Example> examples, const StopToken& stop) {
  for (const Example& e : examples) {
    if (stop.requested()) return;
    const std::string got = answer(run, e.prompt);
    log::say("  {:<20} → {:<10} {}", first_line(e.prompt), got,
             got == e.response ? "right" : fmt::format("wrong: {}", e.response));
  }
}

}  // namespace

DemoTasks::DemoTasks(std::vector<Example> examples) {
  ExampleSplit parts = split(std::move(examples));
  train = std::move(parts.train);
  asked = std::move(parts.held_out);
  held_out = asked.size();
  asked.resize(std::min(asked.size(), kAsked));
}

RunInputs demo_inputs(NamedModel model, const DemoTasks& tasks) {
  RunInputs in;
  in.tokenizer = std::make_shared<ByteTokenizer>();
  in.model = std::move(model);
  in.data.train = make_dataset(tasks.train, *in.tokenizer, true);
  in.data.validation = make_dataset(tasks.asked, *in.tokenizer, true);
  in.max_seq_length = kDemoPositions;
  in.is_text = true;
  in.sample_positions = kDemoPositions;
  return in;
}

int train_and_ask(TrainingRun& run, std::span<const Example> asked, const StopToken& stop) {
  NothingToSave nothing_to_save;
  run.initialize();
  run.verify();
  ask(run, asked, "before training:", stop);
  stop.check();
  nothing_to_save.over();
  run.train();
  if (run.interrupted() != 0) {
    log::warn("interrupted after step {}{}", run.steps(), run.length().of_steps());
    return run.interrupted();
  }
  ask(run, asked, "after training:", stop);
  log::say("");
  show_samples(run, asked.first(std::min(asked.size(), kShown)), stop);
  run.finish();
  if (run.interrupted() != 0) log::warn("interrupted at the end; the model is complete");
  return run.interrupted();
}

std::string command_to_ask(const std::filesystem::path& folder, std::span<const Example> asked) {
  return fmt::format("capstan generate {} --temperature 0 --prompt $'{}\\n'",
                     in_shell(folder.string()), first_line(asked.front().prompt));
}

}  // namespace capstan::cli
