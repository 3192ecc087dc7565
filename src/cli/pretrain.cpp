#include <fmt/format.h>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/recipe_arguments.h"
#include "data/text_files.h"
#include "report/summary.h"
#include "train/run.h"

namespace capstan::cli {
namespace {

ModelConfig model_of(const Recipe& r, const Tokenizer& tokenizer) {
  ModelConfig c;
  if (!r.initial_checkpoint_dir.empty()) {
    c = read_config(r.initial_checkpoint_dir);
    require_byte_tokenizer(r.initial_checkpoint_dir);
  } else if (!r.model_config.empty()) {
    c = parse_config(read_text(r.model_config, 1 << 20), r.model_config);
  } else {
    c = model_by_sizes(r, tokenizer);
  }
  require(tokenizer.vocab_size() <= c.vocab, Fault::usage,
          "the byte-level tokenizer has {} tokens, the model {}", tokenizer.vocab_size(), c.vocab);
  require(r.max_seq_length <= c.max_positions, Fault::usage,
          "train.max_seq_length {} is above the model's max_position_embeddings; give "
          "--train.max_seq_length {} or less",
          r.max_seq_length, c.max_positions);
  // The data are made of the tokenizer's ids, whatever the config was written for.
  c.bos_id = tokenizer.bos().value_or(-1);
  c.eos_ids = {tokenizer.eos()};
  return c;
}

Split samples(const Recipe& r, const Tokenizer& tokenizer) {
  const Dataset all = load_text_files(r.train_data_path, tokenizer, r.max_seq_length);
  require(all.size() > 1 || r.val_split_fraction == 0, Fault::file,
          "{}: makes one sample of at most {} tokens, so none can be held out; give more text, or "
          "--data.val_split_fraction 0",
          r.train_data_path, r.max_seq_length);
  return split(all, r.val_split_fraction, static_cast<uint64_t>(r.seed));
}

}  // namespace

int pretrain(const Arguments& arguments) {
  const auto recipe = recipe_from(arguments, "pretrain", "train a model on text, byte by byte");
  if (!recipe) return 0;
  require(!recipe->train_data_path.empty(), Fault::usage,
          "data.train_data_path: expected a .txt file or a folder of them; give "
          "--data.train_data_path PATH");
  check_recipe(*recipe);
  if (recipe->lr_warmup_steps >= recipe->max_steps)
    log::warn(
        "the warm-up of {} steps is not shorter than the run of {}: the learning rate never "
        "reaches its peak",
        recipe->lr_warmup_steps, recipe->max_steps);
  const ByteTokenizer tokenizer;
  const ModelConfig model = model_of(*recipe, tokenizer);
  Split data = samples(*recipe, tokenizer);
  log::info("{} parameters, {} training samples, {} held out",
            format_count(static_cast<double>(make_spec(model).parameter_count())),
            data.train.size(), data.validation.size());

  TrainingRun run(*recipe, model, std::move(data.train), std::move(data.validation), 0);
  log::info("{}", plan_table(run.plan()));
  const std::filesystem::path folder = std::filesystem::path(recipe->out_dir) / "final";
  run.check_save(folder);
  run.initialize();
  run.train();
  if (run.interrupted() == 0) {
    run.save(folder);
    log::info("\n{}\n  saved to {}", run.report(), folder.string());
    return 0;
  }
  const std::filesystem::path partial =
      folder.parent_path() / fmt::format("step-{:08}", run.steps());
  run.save(partial);
  log::warn(
      "interrupted after step {} of {}; the weights are in {}. --initial_checkpoint_dir {} starts "
      "from them, with the optimizer and the order of samples anew",
      run.steps(), recipe->max_steps, partial.string(), partial.string());
  return 128 + run.interrupted();
}

}  // namespace capstan::cli
