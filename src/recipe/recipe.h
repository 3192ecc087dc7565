#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/quantize_kind.h"
#include "recipe/activations.h"
#include "recipe/choices.h"
#include "recipe/devices.h"
#include "recipe/example_choice.h"
#include "recipe/loggers.h"
#include "recipe/micro_batch.h"
#include "recipe/pipeline_choice.h"
#include "recipe/resume.h"
#include "recipe/split_names.h"
#include "tensor/accelerator.h"

namespace capstan {

// The command that a recipe is for. The values are bits: an option says which of them use it.
enum class Task : uint8_t { pretrain = 1, finetune_full = 2, finetune_lora = 4, demo = 8 };
template <>
struct NameTable<Task> {
  static constexpr Named<Task> rows[] = {{Task::pretrain, "pretrain"},
                                         {Task::finetune_full, "finetune_full"},
                                         {Task::finetune_lora, "finetune_lora"},
                                         {Task::demo, "demo"}};
};

struct Betas {
  double first = 0.9, second = 0.999;
  bool operator==(const Betas&) const = default;
};

// What the user asks of a training run. Each field is one row of options(); names of keys follow
// LitGPT. A field that may be null is a std::optional, and null is the empty optional; all others
// always have a value, and a key that a YAML file leaves empty keeps its default.
struct Recipe {
  // model
  std::optional<std::string> checkpoint_dir;  // to fine-tune
  std::optional<std::string> model_name;      // of the table of known models
  std::optional<std::string>
      model_config;  // path of a config.json; without any of these, the sizes below
  std::optional<std::string> initial_checkpoint_dir;
  std::optional<std::string> tokenizer_dir;
  int64_t hidden_size = 128;
  int64_t intermediate_size = 352;
  int64_t num_hidden_layers = 4;
  int64_t num_attention_heads = 4;
  std::optional<int64_t> num_key_value_heads;  // null: as many as attention heads
  std::optional<int64_t> head_dim;             // null: hidden_size / num_attention_heads
  std::optional<int64_t> vocab_size;           // null: as many as the tokenizer has
  std::optional<int64_t> max_positions;        // null: max_seq_length, or 256
  double rms_norm_eps = 1e-5;
  double rope_theta = 10'000;
  std::optional<bool> tie_embeddings;  // null: as the model has it
  // data
  DataClass data = DataClass::json;
  std::optional<std::string> json_path;
  std::optional<std::string> download_dir;
  std::optional<std::string> train_data_path, val_data_path;
  // data.columns: what the fields of records are called in the file; null: the usual names
  std::optional<std::string> column_instruction, column_input, column_output;
  std::optional<std::string> column_system, column_messages, column_text;
  std::optional<std::string> data_path;   // of a set of texts; null: where LitGPT looks for it
  std::optional<SplitNames> split_names;  // of LitData; null: all of it is one set
  bool use_starcoder = true;
  bool mask_prompt = false;
  std::optional<std::string> prompt_style;
  std::optional<double> val_split_fraction;
  int64_t ignore_index = -100;
  int64_t data_seed = 42;
  int64_t num_workers = 4;
  bool packed = true;
  bool data_cache = true;
  // run
  std::string out_dir;
  std::optional<Precision> precision;               // null: what the device does best
  std::optional<MatmulPrecision> matmul_precision;  // null: high
  std::optional<Quantize> quantize;
  Activations activations;
  Accelerator accelerator = Accelerator::automatic;
  Devices devices;
  int64_t num_nodes = 1;
  Strategy strategy = Strategy::automatic;
  int64_t tensor_parallel = 1;
  Overlap tensor_parallel_overlap = Overlap::automatic;
  int64_t context_parallel = 1;
  int64_t pipeline_parallel = 1;
  PipelineChoice pipeline_schedule;
  double timeout = 300;
  bool self_check = false;
  Resume resume;
  Loggers logger_name = Logger::csv;
  std::optional<std::string> log_project, log_run, log_group;  // names that trackers show
  std::optional<std::string> log_trace;
  int64_t log_trace_step = 3;
  int64_t seed = 1337;
  // train
  std::optional<int64_t> save_interval = 1000;
  std::optional<int64_t> keep_last;
  bool keep_best = false;
  std::optional<int64_t> patience;
  bool save_async = true;
  int64_t log_interval = 1;
  int64_t global_batch_size = 16;
  MicroBatch micro_batch_size = 1;
  std::optional<int64_t> lr_warmup_steps = 100;
  std::optional<double> lr_warmup_fraction;
  std::optional<int64_t> epochs, max_tokens, max_steps;
  std::optional<double> max_time;
  std::optional<int64_t> max_seq_length;
  std::optional<double> max_norm;
  double min_lr = 0;
  LrDecay schedule = LrDecay::cosine;
  OnNan on_nan = OnNan::stop;
  int64_t max_skipped = 10;
  double loss_scale = 65536;
  int64_t loss_scale_interval = 2000;
  // eval
  int64_t eval_interval = 600;
  std::optional<int64_t> eval_max_new_tokens = 100;
  int64_t eval_max_iters = 100;
  bool initial_validation = false;
  bool final_validation = true;
  ExampleChoice evaluate_example;
  // optimizer
  OptimizerClass optimizer;
  double lr = 1e-3;
  double weight_decay = 0.01;
  Decay decay = Decay::all;
  Rounding rounding = Rounding::nearest;
  Betas betas;
  double eps = 1e-8;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  // LoRA
  int64_t lora_r = 8;
  int64_t lora_alpha = 16;
  double lora_dropout = 0.05;
  bool lora_rslora = false;
  bool lora_query = true, lora_key = false, lora_value = true;
  bool lora_projection = false, lora_mlp = false, lora_head = false;

  // As if one rank had the whole model, with all its micro-batches.
  void use_one_rank() { num_nodes = tensor_parallel = context_parallel = pipeline_parallel = 1; }
};

// What a command does when nothing is said: LitGPT's defaults (where it has the command).
Recipe defaults_of(Task task);

}  // namespace capstan
