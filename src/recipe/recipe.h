#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace capstan {

// The command that a recipe is for. The values are bits: an option says which of them use it.
enum class Task : uint8_t { pretrain = 1, finetune_full = 2, finetune_lora = 4, demo = 8 };
std::string_view name_of(Task task);

struct Betas {
  double first = 0.9, second = 0.999;
  bool operator==(const Betas&) const = default;
};

// What the user asks of a training run. Each field is one row of options(); names of keys follow
// LitGPT. An empty string and an empty optional are YAML's null.
struct Recipe {
  // model
  std::string checkpoint_dir;  // to fine-tune
  std::string model_name;      // of the table of known models
  std::string model_config;    // path of a config.json; without any of these, the sizes below
  std::string initial_checkpoint_dir;
  std::string tokenizer_dir;
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
  std::string data = "JSON";
  std::string json_path;
  std::string download_dir;
  std::string train_data_path, val_data_path;
  // data.columns: what the fields of records are called in the file; null: the usual names
  std::string column_instruction, column_input, column_output;
  std::string column_system, column_messages, column_text;
  std::string data_path;    // of a set of texts; null: where LitGPT looks for it
  std::string split_names;  // of LitData: "[train, val]"
  bool use_starcoder = true;
  bool mask_prompt = false;
  std::string prompt_style;
  std::optional<double> val_split_fraction;
  int64_t ignore_index = -100;
  int64_t data_seed = 42;
  int64_t num_workers = 4;
  bool packed = true;
  bool data_cache = true;
  // run
  std::string out_dir;
  std::string precision;  // null: what the device does best
  std::string matmul_precision = "highest";
  std::string quantize;
  std::string activations = "none";
  std::string accelerator = "auto";
  std::string devices = "1";
  int64_t num_nodes = 1;
  std::string resume = "false";
  std::string logger_name = "csv";
  int64_t seed = 1337;
  // train
  std::optional<int64_t> save_interval = 1000;
  std::optional<int64_t> keep_last;
  bool save_async = true;
  int64_t log_interval = 1;
  int64_t global_batch_size = 16;
  int64_t micro_batch_size = 1;
  std::optional<int64_t> lr_warmup_steps = 100;
  std::optional<double> lr_warmup_fraction;
  std::optional<int64_t> epochs, max_tokens, max_steps;
  std::optional<double> max_time;
  std::optional<int64_t> max_seq_length;
  std::optional<double> max_norm;
  double min_lr = 0;
  std::string schedule = "cosine";
  std::string on_nan = "stop";
  int64_t max_skipped = 10;
  // eval
  int64_t eval_interval = 600;
  std::optional<int64_t> eval_max_new_tokens = 100;
  int64_t eval_max_iters = 100;
  bool initial_validation = false;
  bool final_validation = true;
  std::string evaluate_example = "first";
  // optimizer
  std::string optimizer = "AdamW";
  double lr = 1e-3;
  double weight_decay = 0.01;
  std::string decay = "all";
  std::string rounding = "nearest";
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
};

// Whether the data of this name are texts, all of which is learned, and not records.
bool is_text(std::string_view data);
// Whether they are a set of texts, which lies at data.data_path.
bool is_text_set(std::string_view data);

// What a command does when nothing is said: LitGPT's defaults (where it has the command).
Recipe defaults_of(Task task);

}  // namespace capstan
