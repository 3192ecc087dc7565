#include "recipe/options.h"

#include "base/error.h"
#include "recipe/conditions.h"
#include "recipe/keys.h"
#include "recipe/nearest.h"

namespace capstan {
namespace {

constexpr uint8_t bit(Task task) {
  return static_cast<uint8_t>(task);
}
constexpr uint8_t kDemo = bit(Task::demo);
constexpr uint8_t kPretrain = bit(Task::pretrain);
constexpr uint8_t kLora = bit(Task::finetune_lora);
constexpr uint8_t kFinetune = bit(Task::finetune_full) | kLora;
constexpr uint8_t kTrain = kPretrain | kFinetune;
constexpr uint8_t kAll = kTrain | kDemo;

constexpr std::string_view kService =
    "is a service that Capstan does not talk to; use csv, tensorboard or jsonl, which it can "
    "import";

using R = Recipe;
using enum Check;
using namespace condition;

const std::vector<Option> kModel = {
    {"checkpoint_dir", &R::checkpoint_dir, any, kFinetune,
     "folder of the model to fine-tune, as given or under checkpoints/"},
    {"model_name", &R::model_name, any, kPretrain, "a known model, e.g. Llama-3.2-1B"},
    {"model_config", &R::model_config, any, kPretrain,
     "config.json of the model; or, in a recipe, the fields of LitGPT's Config", kModelConfig},
    {"initial_checkpoint_dir", &R::initial_checkpoint_dir, any, kPretrain,
     "go on from these weights"},
    {"tokenizer_dir", &R::tokenizer_dir, any, kPretrain,
     "folder of the tokenizer; without one, one token per byte"},
    {"model.hidden_size", &R::hidden_size, positive, kPretrain | kDemo,
     "channels of the residual stream", kModelSize},
    {"model.intermediate_size", &R::intermediate_size, positive, kPretrain | kDemo,
     "channels inside the MLP", kModelSize},
    {"model.num_hidden_layers", &R::num_hidden_layers, positive, kPretrain | kDemo, "blocks",
     kModelSize},
    {"model.num_attention_heads", &R::num_attention_heads, positive, kPretrain | kDemo,
     "query heads", kModelSize},
    {"model.num_key_value_heads", &R::num_key_value_heads, positive, kPretrain | kDemo,
     "key and value heads; null: as many as query heads", kModelSize},
    {"model.head_dim", &R::head_dim, positive, kPretrain,
     "channels of a head; null: hidden_size / num_attention_heads", kModelSize},
    {"model.vocab_size", &R::vocab_size, positive, kPretrain,
     "rows of the embedding; null: as many as the tokenizer has tokens", kModelSize},
    {"model.max_position_embeddings", &R::max_positions, positive, kPretrain,
     "longest sequence; null: train.max_seq_length, or 256", kModelSize},
    {"model.rms_norm_eps", &R::rms_norm_eps, positive, kPretrain, "epsilon of the norms",
     kModelSize},
    {"model.rope_theta", &R::rope_theta, positive, kPretrain, "base of rope's frequencies",
     kModelSize},
};

const std::vector<Option> kRun = {
    {"out_dir", &R::out_dir, any, kAll, "where checkpoints, logs and the report go"},
    {"precision",
     &R::precision,
     any,
     kAll,
     "types to compute with; null: 32-true on a CPU, bf16-mixed on a GPU; fp8-mixed is for "
     "pretrain and finetune_full",
     kPrecision,
     nullptr,
     {{"16-true",
       "needs float16, which this device does not compute with; use bf16-true, which has the same "
       "size and a wider range"},
      {"16-mixed",
       "needs float16, which this device does not compute with; use bf16-mixed, which has the same "
       "size and a wider range"}}},
    {"matmul_precision", &R::matmul_precision, any, kTrain,
     "products of 32-true on a GPU: exact, or faster with factors rounded to TF32 (high); on a CPU "
     "it changes nothing",
     kF32Products},
    {"quantize", &R::quantize, any, kLora, "the frozen weights in few bits"},
    {"activations", &R::activations, any, kAll,
     "what the backward pass recomputes, of all blocks or the first N; auto: as little as fits"},
    {"accelerator", &R::accelerator, any, kAll, "what computes; auto is a GPU where there is one"},
    {"devices", &R::devices, any, kTrain, "devices to train on", kOneDevice},
    {"num_nodes", &R::num_nodes, positive, kTrain, "machines to train on", kOneNode},
    {"resume", &R::resume, any, kTrain,
     "go on from out_dir's newest checkpoint (true), from it if there is one (auto), or a folder"},
    {"logger_name",
     &R::logger_name,
     any,
     kTrain,
     "metrics beside metrics.csv",
     {},
     nullptr,
     {{"wandb", kService}, {"mlflow", kService}}},
    {"seed", &R::seed, not_negative, kAll, "of initial weights, sample order and dropout"},
};

const std::vector<Option> kData = {
    {"data", &R::data, any, kTrain, "kind of data, or the name of a set"},
    {"data.json_path", &R::json_path, any, kTrain,
     ".json, .jsonl or .csv of records or chats, or a folder with train and val", kJsonPath},
    {"data.columns.instruction", &R::column_instruction, any, kTrain,
     "what the instructions are called in the file; null: instruction, prompt, question or query",
     kColumn},
    {"data.columns.input", &R::column_input, any, kTrain,
     "what the inputs are called; null: input, or context", kColumn},
    {"data.columns.output", &R::column_output, any, kTrain,
     "what the answers are called; null: output, response, completion or answer", kColumn},
    {"data.columns.system", &R::column_system, any, kTrain,
     "what the system texts are called; null: system or system_prompt", kColumn},
    {"data.columns.messages", &R::column_messages, any, kTrain,
     "what the lists of messages are called; null: messages or conversations", kColumn},
    {"data.columns.text", &R::column_text, any, kTrain,
     "what documents are called, which are learned as they are; null: text", kTextColumn},
    {"data.download_dir", &R::download_dir, any, kTrain, "where a named set lies; else under data/",
     kDownloadDir},
    {"data.train_data_path", &R::train_data_path, any, kTrain,
     "TextFiles: a .txt file, a .jsonl of {\"text\": …}, or a folder of them", kTextFiles},
    {"data.val_data_path", &R::val_data_path, any, kTrain, "TextFiles: held-out text", kTextFiles},
    {"data.data_path", &R::data_path, any, kTrain,
     "folder of TinyStories, TinyLlama, MicroLlama, OpenWebText or LitData; null: where LitGPT "
     "looks for it, under data/",
     kTextSet},
    {"data.split_names", &R::split_names, any, kTrain,
     "LitData: folders of training and validation in data_path, as train,val", kLitData},
    {"data.use_starcoder", &R::use_starcoder, any, kTrain, "TinyLlama: starcoder beside slimpajama",
     kTinyLlama},
    {"data.mask_prompt", &R::mask_prompt, any, kTrain, "learn the responses alone", kMaskPrompt},
    {"data.prompt_style", &R::prompt_style, any, kTrain,
     "how instructions look to the model; null: alpaca", kPromptStyle},
    {"data.val_split_fraction", &R::val_split_fraction, fraction, kTrain, "samples held out"},
    {"data.ignore_index",
     &R::ignore_index,
     any,
     kTrain,
     "label of what is not learned",
     {},
     "masked labels are kept apart from the ids, so no number is needed for them"},
    {"data.seed", &R::data_seed, not_negative, kTrain, "of the split into training and validation"},
    {"data.num_workers",
     &R::num_workers,
     not_negative,
     kTrain,
     "loader processes",
     {},
     "samples are tokenized beforehand, by all cores"},
    {"data.packed", &R::packed, any, kAll, "documents one after the other, without padding"},
    {"data.cache", &R::data_cache, any, kTrain, "keep the tokens for the next run"},
};

const std::vector<Option> kTrainOptions = {
    {"train.tie_embeddings", &R::tie_embeddings, any, kAll,
     "use the embedding as the output head; null: as the model has it"},
    {"train.save_interval", &R::save_interval, positive, kTrain, "steps between checkpoints"},
    {"train.keep_last", &R::keep_last, positive, kTrain, "checkpoints to keep; null: all"},
    {"train.save_async", &R::save_async, any, kTrain,
     "write checkpoints while the training goes on, from a copy in host memory"},
    {"train.log_interval", &R::log_interval, positive, kAll,
     "micro-batches between lines of progress"},
    {"train.global_batch_size", &R::global_batch_size, positive, kAll,
     "samples per optimizer step"},
    {"train.micro_batch_size", &R::micro_batch_size, positive, kAll, "samples per pass"},
    {"train.lr_warmup_steps", &R::lr_warmup_steps, not_negative, kAll, "steps of linear warm-up"},
    {"train.lr_warmup_fraction", &R::lr_warmup_fraction, fraction, kAll,
     "warm-up as a part of the run", kWarmUpSteps},
    {"train.epochs", &R::epochs, positive, kTrain, "passes over the data"},
    {"train.max_tokens", &R::max_tokens, positive, kTrain, "tokens to train on"},
    {"train.max_steps", &R::max_steps, positive, kAll, "optimizer steps", kLength},
    {"train.max_time", &R::max_time, positive, kAll, "seconds of training", kScheduleEnds},
    {"train.max_seq_length", &R::max_seq_length, positive, kTrain, "tokens of a sample at most"},
    {"train.max_norm", &R::max_norm, not_negative, kAll, "clip the gradient's norm; null: never"},
    {"train.min_lr", &R::min_lr, not_negative, kAll, "learning rate at the end", kMinLr},
    {"train.schedule", &R::schedule, any, kAll, "learning rate after the warm-up"},
    {"train.on_nan", &R::on_nan, any, kAll,
     "when loss or gradients are not finite; the weights stay as they were"},
    {"train.max_skipped", &R::max_skipped, positive, kAll,
     "train.on_nan skip: left-out steps in a row that end the run", kSkips},
    {"eval.interval", &R::eval_interval, positive, kAll, "steps between validations"},
    {"eval.max_new_tokens", &R::eval_max_new_tokens, positive, kTrain,
     "length of the sample that is shown; null: none"},
    {"eval.max_iters", &R::eval_max_iters, positive, kAll, "micro-batches per validation"},
    {"eval.initial_validation", &R::initial_validation, any, kTrain, "validate before step 1"},
    {"eval.final_validation", &R::final_validation, any, kTrain,
     "validate at the end: all held-out samples, or eval.max_iters in pretraining"},
    {"eval.evaluate_example", &R::evaluate_example, any, kTrain, "which held-out sample is shown"},
};

const std::vector<Option> kOptimizer = {
    {"optimizer", &R::optimizer, any, kAll,
     "method; 8bit: with moments in 8 bits, Paged: with its state in host memory beside a GPU"},
    {"optimizer.lr", &R::lr, positive, kAll, "peak learning rate"},
    {"optimizer.weight_decay", &R::weight_decay, not_negative, kAll,
     "pull of the weights to zero; not given: 0.01 for AdamW, 0 for SGD"},
    {"optimizer.decay", &R::decay, any, kAll, "what it pulls: everything, or not norms and biases"},
    {"optimizer.rounding", &R::rounding, any, kAll,
     "of weights that are bf16 alone (precision bf16-true): to the nearest, or up or down by "
     "chance",
     kRounding},
    {"optimizer.betas", &R::betas, fraction, kAll, "AdamW: of its two moments", kAdamW},
    {"optimizer.eps", &R::eps, positive, kAll, "AdamW: epsilon", kAdamW},
    {"optimizer.momentum", &R::momentum, fraction, kAll, "SGD: momentum", kSgd},
    {"optimizer.dampening", &R::dampening, fraction, kAll, "SGD: of the gradient in its momentum",
     kSgdMomentum},
    {"optimizer.nesterov", &R::nesterov, any, kAll, "SGD: look ahead along the momentum",
     kSgdMomentum},
};

const std::vector<Option> kLoraOptions = {
    {"lora_r", &R::lora_r, positive, kLora, "rank of the adapters"},
    {"lora_alpha", &R::lora_alpha, positive, kLora, "adapters count alpha / r times"},
    {"lora_dropout", &R::lora_dropout, fraction, kLora, "of the adapters' input"},
    {"lora_rslora", &R::lora_rslora, any, kLora, "adapters count alpha / sqrt(r) times instead"},
    {"lora_query", &R::lora_query, any, kLora, "adapt the query projection"},
    {"lora_key", &R::lora_key, any, kLora, "adapt the key projection"},
    {"lora_value", &R::lora_value, any, kLora, "adapt the value projection"},
    {"lora_projection", &R::lora_projection, any, kLora, "adapt attention's output"},
    {"lora_mlp", &R::lora_mlp, any, kLora, "adapt the MLP"},
    {"lora_head", &R::lora_head, any, kLora, "adapt the output head"},
};

}  // namespace

std::span<const Option> options() {
  static const std::vector<Option> table = [] {
    std::vector<Option> all;
    for (const auto* part : {&kModel, &kRun, &kData, &kTrainOptions, &kOptimizer, &kLoraOptions})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }();
  return table;
}

const Option& find_option(std::string_view key) {
  const std::string wanted = short_key(key);
  std::vector<std::string_view> keys;
  for (const Option& o : options()) {
    if (wanted == o.key) return o;
    keys.emplace_back(o.key);
  }
  const std::string_view fixed = fixed_value(wanted);
  require(fixed.empty(), Fault::usage, "{}: is always {}; leave it out", key, fixed);
  const bool rate = wanted.ends_with("learning_rate");  // LitGPT's, before there was optimizer.lr
  fail(Fault::usage, "{}: no such key{}", key, did_you_mean(rate ? "optimizer.lr" : wanted, keys));
}

}  // namespace capstan
