#include "recipe/recipe.h"

namespace capstan {

std::string_view name_of(Task task) {
  switch (task) {
    case Task::pretrain: return "pretrain";
    case Task::finetune_full: return "finetune_full";
    case Task::finetune_lora: return "finetune_lora";
    case Task::demo: return "demo";
  }
  return "?";
}

bool is_text_set(std::string_view data) {
  return data == "TinyStories" || data == "TinyLlama" || data == "MicroLlama" ||
         data == "OpenWebText" || data == "LitData";
}

bool is_text(std::string_view data) {
  return data == "TextFiles" || is_text_set(data);
}

Recipe defaults_of(Task task) {
  Recipe r;
  switch (task) {
    case Task::finetune_full:
      r.out_dir = "out/finetune/full";
      r.epochs = 5;
      break;
    case Task::finetune_lora:
      r.out_dir = "out/finetune/lora";
      r.epochs = 5;
      r.eval_interval = 100;
      break;
    case Task::pretrain:
      r.out_dir = "out/pretrain";
      r.data = "TextFiles";
      r.devices = "auto";
      r.global_batch_size = 512;
      r.micro_batch_size = 4;
      r.lr_warmup_steps = 2000;
      r.max_tokens = 3'000'000'000'000;
      r.max_norm = 1;
      r.min_lr = 4e-5;
      r.eval_interval = 1000;
      r.eval_max_new_tokens = std::nullopt;
      r.logger_name = "tensorboard";
      r.seed = 42;
      break;
    case Task::demo: r.out_dir = "out/demo"; break;
  }
  return r;
}

}  // namespace capstan
