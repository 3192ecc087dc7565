#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "data/text_files.h"
#include "report/summary.h"
#include "train/run.h"

namespace capstan::cli {
namespace {

ModelConfig model_of(const Recipe& r, const Tokenizer& tokenizer) {
  if (!r.initial_checkpoint_dir.empty()) return read_config(r.initial_checkpoint_dir);
  if (!r.model_config.empty()) return parse_config(read_text(r.model_config, 1 << 20), r.model_config);
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
  check_config(c);
  return c;
}

}  // namespace

int pretrain(const Arguments& arguments) {
  const auto recipe = recipe_from(arguments, "pretrain", "train a model on text, byte by byte");
  if (!recipe) return 0;
  require(!recipe->train_data_path.empty(), Fault::usage,
          "data.train_data_path: expected a .txt file or a folder of them; give "
          "--data.train_data_path PATH");
  const ByteTokenizer tokenizer;
  const ModelConfig model = model_of(*recipe, tokenizer);
  require(tokenizer.vocab_size() <= model.vocab, Fault::usage,
          "the byte-level tokenizer has {} tokens, the model {}", tokenizer.vocab_size(),
          model.vocab);
  Split data = split(load_text_files(recipe->train_data_path, tokenizer, recipe->max_seq_length),
                     recipe->val_split_fraction, static_cast<uint64_t>(recipe->seed));
  log::info("{} parameters, {} training samples, {} held out",
            format_count(static_cast<double>(make_spec(model).parameter_count())), data.train.size(),
            data.validation.size());

  TrainingRun run(*recipe, model, std::move(data.train), std::move(data.validation), 0);
  log::info("{}", plan_table(run.plan()));
  run.initialize();
  run.train();
  const std::filesystem::path folder = std::filesystem::path(recipe->out_dir) / "final";
  run.save(folder);
  log::info("\n{}\n  saved to {}", run.report(), folder.string());
  return 0;
}

}  // namespace capstan::cli
