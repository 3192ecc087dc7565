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

using R = Recipe;
using enum Check;
using namespace condition;

const std::vector<Option> kModel = {
    {"checkpoint_dir", &R::checkpoint_dir, any, kFinetune,
     "folder of the model to fine-tune, or its name under checkpoints/"},
    {"model_name", &R::model_name, any, kPretrain, "name of a known model, e.g. Llama-3.2-1B"},
    {"model_config", &R::model_config, any, kPretrain,
     "path of the model's config.json; in a recipe, also the fields of LitGPT's Config",
     kModelConfig},
    {"initial_checkpoint_dir", &R::initial_checkpoint_dir, any, kPretrain,
     "folder of the weights to start from; null: random weights"},
    {"tokenizer_dir", &R::tokenizer_dir, any, kPretrain,
     "folder of the tokenizer; null: that of initial_checkpoint_dir, or one token per byte"},
    {"model.hidden_size", &R::hidden_size, positive, kPretrain | kDemo,
     "width of the residual stream", kModelSize},
    {"model.intermediate_size", &R::intermediate_size, positive, kPretrain | kDemo,
     "width of the MLP", kModelSize},
    {"model.num_hidden_layers", &R::num_hidden_layers, positive, kPretrain | kDemo,
     "number of transformer blocks", kModelSize},
    {"model.num_attention_heads", &R::num_attention_heads, positive, kPretrain | kDemo,
     "number of query heads", kModelSize},
    {"model.num_key_value_heads", &R::num_key_value_heads, positive, kPretrain | kDemo,
     "number of key and value heads; null: as many as query heads", kModelSize},
    {"model.head_dim", &R::head_dim, positive, kPretrain,
     "width of a head; null: hidden_size / num_attention_heads", kModelSize},
    {"model.vocab_size", &R::vocab_size, positive, kPretrain,
     "rows of the embedding; null: the size of the tokenizer", kModelSize},
    {"model.max_position_embeddings", &R::max_positions, positive, kPretrain,
     "maximum sequence length of the model; null: train.max_seq_length, or 256", kModelSize},
    {"model.rms_norm_eps", &R::rms_norm_eps, positive, kPretrain, "epsilon of RMSNorm", kModelSize},
    {"model.rope_theta", &R::rope_theta, positive, kPretrain, "base of the RoPE frequencies",
     kModelSize},
};

const std::vector<Option> kRun = {
    {"out_dir", &R::out_dir, any, kAll, "folder for checkpoints, logs and the report"},
    {"precision", &R::precision, any, kAll,
     "number types of the run; null: bf16-mixed on a GPU (16-mixed on one without bf16), 32-true "
     "on "
     "a CPU; fp8-mixed needs pretrain or finetune_full",
     kPrecision},
    {"matmul_precision", &R::matmul_precision, any, kTrain,
     "matrix products of 32-true on a GPU: high multiplies in TF32, if the GPU has it, highest in "
     "f32, which is several times slower; null: as the run that is resumed, else high, as LitGPT",
     kF32Products},
    {"quantize", &R::quantize, any, kLora, "quantization of the frozen weights; null: none"},
    {"activations", &R::activations, any, kAll,
     "what the backward pass recomputes, in all blocks or in the first N; auto: the least that "
     "fits in memory"},
    {"accelerator", &R::accelerator, any, kAll,
     "device to train on; auto: a GPU if there is one, else the CPU"},
    {.key = "devices",
     .field = &R::devices,
     .check = any,
     .tasks = kTrain,
     .help = "devices of each machine, a rank on each: a number (on a CPU, of ranks that share its "
             "cores), GPUs as [0, 1], or auto: all GPUs, or one CPU",
     .needs = kDevices,
     .mesh = true},
    {.key = "num_nodes",
     .field = &R::num_nodes,
     .check = positive,
     .tasks = kTrain,
     .help = "number of machines, on which mpirun starts the ranks",
     .needs = kNodes,
     .mesh = true},
    {.key = "strategy",
     .field = &R::strategy,
     .check = any,
     .tasks = kTrain,
     .help =
         "what several ranks divide: the work (ddp), also the optimizer's state (zero1), the "
         "gradients (zero2), and the weights (zero3, FSDP's full shard; hybrid: within each "
         "machine); auto: the fastest that fits, by what was measured here or the data sheets of "
         "GPUs, else zero3. offload: on GPUs, masters and moments are in host memory",
     .refused = {{"deepspeed", "names no stage; use deepspeed_stage_1, 2 or 3"}},
     .mesh = true},
    {.key = "tensor_parallel",
     .field = &R::tensor_parallel,
     .check = positive,
     .tasks = kTrain,
     .help = "ranks that share each layer: each has some of its heads, inner channels and rows of "
             "the vocabulary, and between layers an equal share of the tokens; best among the GPUs "
             "of one machine",
     .needs = kLayerShares,
     .mesh = true},
    {.key = "tensor_parallel_overlap",
     .field = &R::tensor_parallel_overlap,
     .check = any,
     .tasks = kTrain,
     .help = "ranks that share each layer exchange half of the tokens while they compute with the "
             "other half, and gradients while they compute others, which takes some memory; auto: "
             "if a step is then shorter, by what capstan bench and bench comm measured",
     .needs = kOverlap,
     .mesh = true},
    {.key = "context_parallel",
     .field = &R::context_parallel,
     .check = positive,
     .tasks = kTrain,
     .help = "ranks that share each sequence, for long ones: each has an equal number of its "
             "tokens, and in attention some of the heads",
     .needs = kSequenceShares,
     .mesh = true},
    {.key = "pipeline_parallel",
     .field = &R::pipeline_parallel,
     .check = positive,
     .tasks = kTrain,
     .help = "stages of a pipeline: each rank has some of the model's blocks, and several "
             "micro-batches are under way; the ranks of each stage share the data (strategy, then "
             "zero1 for auto)",
     .needs = kStages,
     .mesh = true},
    {.key = "pipeline_schedule",
     .field = &R::pipeline_schedule,
     .check = any,
     .tasks = kTrain,
     .help = "how the stages take turns: 1f1b; interleaved, or interleaved:CHUNKS: each stage has "
             "two or more chunks, which shortens the wait at both ends of a step and sends more; "
             "zero_bubble: gradients of weights are computed while a stage would wait",
     .needs = kPipelineSchedule,
     .mesh = true},
    {.key = "timeout",
     .field = &R::timeout,
     .check = positive,
     .tasks = kTrain,
     .help = "seconds that a rank waits for another one before the run ends",
     .mesh = true},
    {.key = "self_check",
     .field = &R::self_check,
     .check = any,
     .tasks = kTrain,
     .help = "before training, compare one step of the ranks with the same step of one rank, which "
             "needs memory for the whole model",
     .mesh = true},
    {"resume", &R::resume, any, kTrain,
     "true: resume the newest checkpoint, fail if there is none; auto: resume if there is one; or "
     "a checkpoint folder"},
    {"logger_name", &R::logger_name, any, kTrain,
     "where metrics go, in addition to metrics.csv: files, or a tracker; several as [csv, mlflow]"},
    {"log.project", &R::log_project, any, kTrain,
     "project of a tracker's runs (MLflow: experiment); null: capstan"},
    {"log.run", &R::log_run, any, kTrain, "name of the run in a tracker; null: that of out_dir"},
    {"log.group", &R::log_group, any, kTrain, "group of the run in a tracker"},
    {"log.trace", &R::log_trace, any, kTrain,
     "file for a timeline of one step of rank 0, which ui.perfetto.dev opens; a GPU then does the "
     "ops of that step one by one"},
    {"log.trace_step", &R::log_trace_step, positive, kTrain, "the step of log.trace", kTraceStep},
    {"seed", &R::seed, not_negative, kAll,
     "random seed of initial weights, sample order and dropout"},
};

const std::vector<Option> kData = {
    {"data", &R::data, any, kTrain,
     "class of the data: JSON and TextFiles read your files, LitData a folder that LitGPT "
     "prepared, the others public datasets"},
    {"data.json_path", &R::json_path, any, kTrain,
     "records or chats: a .json, .jsonl or .csv file, or a folder with train and val; -: JSON "
     "lines "
     "from standard input, kept in out_dir",
     kJsonPath},
    {"data.columns.instruction", &R::column_instruction, any, kTrain,
     "name of the instruction field in the file; null: instruction, prompt, question or query",
     kColumn},
    {"data.columns.input", &R::column_input, any, kTrain,
     "name of the input field; null: input or context", kColumn},
    {"data.columns.output", &R::column_output, any, kTrain,
     "name of the output field; null: output, response, completion or answer", kColumn},
    {"data.columns.system", &R::column_system, any, kTrain,
     "name of the system prompt field; null: system or system_prompt", kColumn},
    {"data.columns.messages", &R::column_messages, any, kTrain,
     "name of the field with the list of messages; null: messages or conversations", kColumn},
    {"data.columns.text", &R::column_text, any, kTrain,
     "name of the field with a whole document; null: text", kTextColumn},
    {"data.download_dir", &R::download_dir, any, kTrain,
     "folder of a public dataset of records; null: data", kDownloadDir},
    {"data.train_data_path", &R::train_data_path, any, kTrain,
     "TextFiles: a .txt file, a .jsonl file of {\"text\": …}, or a folder of them", kTextFiles},
    {"data.val_data_path", &R::val_data_path, any, kTrain, "TextFiles: validation text",
     kTextFiles},
    {"data.data_path", &R::data_path, any, kTrain,
     "folder of TinyStories, TinyLlama, MicroLlama, OpenWebText or LitData; null: LitGPT's folder "
     "under data/",
     kTextSet},
    {"data.split_names", &R::split_names, any, kTrain,
     "LitData: folders of the training and validation split in data_path, e.g. train,val",
     kLitData},
    {"data.use_starcoder", &R::use_starcoder, any, kTrain,
     "TinyLlama: use starcoder in addition to slimpajama", kTinyLlama},
    {"data.mask_prompt", &R::mask_prompt, any, kTrain,
     "compute the loss on the responses only, as with chat templates always", kMaskPrompt},
    {"data.prompt_style", &R::prompt_style, any, kTrain,
     "prompt format of instructions; null: the dataset's, or alpaca", kPromptStyle},
    {"data.val_split_fraction", &R::val_split_fraction, fraction, kTrain,
     "fraction of the samples for validation"},
    {"data.ignore_index",
     &R::ignore_index,
     any,
     kTrain,
     "label of masked tokens",
     {},
     "Capstan stores the mask separately, so masked tokens need no label"},
    {"data.seed", &R::data_seed, not_negative, kTrain,
     "random seed of the training and validation split"},
    {"data.num_workers",
     &R::num_workers,
     not_negative,
     kTrain,
     "number of data loader processes",
     {},
     "Capstan tokenizes all samples before training, on all cores"},
    {"data.packed", &R::packed, any, kAll,
     "concatenate documents in a batch instead of padding them"},
    {"data.cache", &R::data_cache, any, kTrain, "cache the tokens on disk for the next run"},
};

const std::vector<Option> kTrainOptions = {
    {"train.tie_embeddings", &R::tie_embeddings, any, kAll,
     "share the embedding with the output head; null: as in the model's config"},
    {"train.save_interval", &R::save_interval, positive, kTrain,
     "steps between checkpoints; null: only the final one"},
    {"train.keep_last", &R::keep_last, positive, kTrain,
     "number of checkpoints to keep; null: all"},
    {"train.keep_best", &R::keep_best, any, kTrain,
     "keep the model with the lowest validation loss in out_dir/best"},
    {"train.patience", &R::patience, positive, kTrain,
     "end the run after so many validations without a lower loss; null: never"},
    {"train.save_async", &R::save_async, any, kTrain,
     "write checkpoints in the background, from a copy in host memory"},
    {"train.log_interval", &R::log_interval, positive, kAll,
     "micro-batches between progress lines"},
    {"train.global_batch_size", &R::global_batch_size, positive, kAll,
     "samples per optimizer step"},
    {"train.micro_batch_size", &R::micro_batch_size, any, kAll,
     "samples per forward and backward pass; auto: what is fastest on this machine, if it was "
     "measured, else the most that fit"},
    {"train.lr_warmup_steps", &R::lr_warmup_steps, not_negative, kAll,
     "steps of linear learning rate warm-up"},
    {"train.lr_warmup_fraction", &R::lr_warmup_fraction, fraction, kAll,
     "warm-up as a fraction of all steps", kWarmUpSteps},
    {"train.epochs", &R::epochs, positive, kTrain, "maximum number of passes over the data"},
    {"train.max_tokens", &R::max_tokens, positive, kTrain, "maximum number of training tokens"},
    {"train.max_steps", &R::max_steps, positive, kAll, "maximum number of optimizer steps",
     kLength},
    {"train.max_time", &R::max_time, positive, kAll, "maximum training time in seconds",
     kScheduleEnds},
    {"train.max_seq_length", &R::max_seq_length, positive, kTrain,
     "maximum tokens per sample; null: the model's maximum"},
    {"train.max_norm", &R::max_norm, not_negative, kAll,
     "maximum gradient norm, for clipping; null: no clipping"},
    {"train.min_lr", &R::min_lr, not_negative, kAll, "learning rate at the end of the schedule",
     kMinLr},
    {"train.schedule", &R::schedule, any, kAll, "learning rate schedule after the warm-up"},
    {"train.on_nan", &R::on_nan, any, kAll,
     "when the loss or a gradient is not finite: stop the run, or skip the step; neither changes "
     "the weights"},
    {"train.max_skipped", &R::max_skipped, positive, kAll,
     "train.on_nan skip: end the run after this many skipped steps in a row", kSkips},
    {"train.loss_scale", &R::loss_scale, power_of_two, kAll,
     "16-true and 16-mixed: the loss's factor at the start, a power of two; halved when gradients "
     "exceed f16",
     kLossScale},
    {"train.loss_scale_interval", &R::loss_scale_interval, positive, kAll,
     "16-true and 16-mixed: steps without that before the factor is doubled", kLossScale},
    {"eval.interval", &R::eval_interval, positive, kAll, "steps between validations"},
    {"eval.max_new_tokens", &R::eval_max_new_tokens, positive, kTrain,
     "maximum tokens of the generated sample; null: generate none"},
    {"eval.max_iters", &R::eval_max_iters, positive, kAll, "maximum micro-batches per validation"},
    {"eval.initial_validation", &R::initial_validation, any, kTrain,
     "validate before the first step"},
    {"eval.final_validation", &R::final_validation, any, kTrain,
     "validate at the end, on all validation samples; in pretraining, on eval.max_iters "
     "micro-batches"},
    {"eval.evaluate_example", &R::evaluate_example, any, kTrain,
     "validation sample to generate a response for; N: its index"},
};

const std::vector<Option> kOptimizer = {
    {"optimizer", &R::optimizer, any, kAll,
     "optimizer class; 8bit: moments in 8 bits; Paged: state in host memory beside a GPU"},
    {"optimizer.lr", &R::lr, positive, kAll, "peak learning rate"},
    {"optimizer.weight_decay", &R::weight_decay, not_negative, kAll,
     "weight decay; default for SGD: 0"},
    {"optimizer.decay", &R::decay, any, kAll,
     "parameters with weight decay: all, or matrices only (no norms and biases)"},
    {"optimizer.rounding", &R::rounding, any, kAll,
     "how bf16-true weights are rounded: nearest or stochastic", kRounding},
    {"optimizer.betas", &R::betas, fraction, kAll, "AdamW: decay rates of the two moments", kAdamW},
    {"optimizer.eps", &R::eps, positive, kAll, "AdamW: epsilon of the denominator", kAdamW},
    {"optimizer.momentum", &R::momentum, fraction, kAll, "SGD: momentum", kSgd},
    {"optimizer.dampening", &R::dampening, fraction, kAll, "SGD: dampening of the momentum",
     kSgdMomentum},
    {"optimizer.nesterov", &R::nesterov, any, kAll, "SGD: use Nesterov momentum", kSgdMomentum},
};

const std::vector<Option> kLoraOptions = {
    {"lora_r", &R::lora_r, positive, kLora, "rank of the adapters"},
    {"lora_alpha", &R::lora_alpha, positive, kLora, "scale of the adapters: alpha / r"},
    {"lora_dropout", &R::lora_dropout, fraction, kLora, "dropout on the adapters' input"},
    {"lora_rslora", &R::lora_rslora, any, kLora, "scale the adapters by alpha / sqrt(r) instead"},
    {"lora_query", &R::lora_query, any, kLora, "adapt the query projection"},
    {"lora_key", &R::lora_key, any, kLora, "adapt the key projection"},
    {"lora_value", &R::lora_value, any, kLora, "adapt the value projection"},
    {"lora_projection", &R::lora_projection, any, kLora,
     "adapt the output projection of attention"},
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
  const std::string_view fixed = why_fixed(wanted);
  require(fixed.empty(), Fault::usage, "{}: {}; remove the key", key, fixed);
  const bool rate = wanted.ends_with("learning_rate");  // LitGPT's, before there was optimizer.lr
  fail(Fault::usage, "{}: no such key{}", key, did_you_mean(rate ? "optimizer.lr" : wanted, keys));
}

}  // namespace capstan
