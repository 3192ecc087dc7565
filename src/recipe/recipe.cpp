#include "recipe/recipe.h"

namespace capstan {

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
      r.data = DataClass::text_files;
      r.devices.automatic = true;
      r.global_batch_size = 512;
      r.micro_batch_size = 4;
      r.lr_warmup_steps = 2000;
      r.max_tokens = 3'000'000'000'000;
      r.max_norm = 1;
      r.min_lr = 4e-5;
      r.eval_interval = 1000;
      r.eval_max_new_tokens = std::nullopt;
      r.logger_name = Logger::tensorboard;
      r.seed = 42;
      break;
    case Task::demo:
      r.out_dir = "out/demo";
      r.final_validation = false;  // it asks the model instead
      break;
  }
  return r;
}

}  // namespace capstan
