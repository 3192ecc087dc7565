#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/recipe_arguments.h"
#include "data/text_files.h"
#include "report/summary.h"
#include "train/run.h"

namespace capstan::cli {
namespace {

ModelConfig model_by_sizes(const Recipe& r, const Tokenizer& tokenizer) {
  require(r.hidden_size % r.num_attention_heads == 0, Fault::usage,
          "model.hidden_size {} is not a multiple of model.num_attention_heads {}", r.hidden_size,
          r.num_attention_heads);
  ModelConfig c;
  c.vocab = tokenizer.vocab_size();
  c.hidden = r.hidden_size;
  c.intermediate = r.intermediate_size;
  c.layers = r.num_hidden_layers;
  c.heads = r.num_attention_heads;
  c.kv_heads = r.num_key_value_heads;
  c.head_dim = c.hidden / c.heads;
  c.max_positions = r.max_seq_length;
  c.tied = r.tie_embeddings;
  c.bos_id = tokenizer.bos().value_or(-1);
  c.eos_ids = {tokenizer.eos()};
  try {
    check_config(c);
  } catch (const Error& e) {
    fail(Fault::usage, "{} (head_dim is model.hidden_size / model.num_attention_heads: {} / {})",
         e.what(), r.hidden_size, r.num_attention_heads);
  }
  return c;
}

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
  run.save(folder);
  log::info("\n{}\n  saved to {}", run.report(), folder.string());
  return 0;
}

}  // namespace capstan::cli
