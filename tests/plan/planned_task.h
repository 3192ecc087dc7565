#pragma once

#include "plan/run_on.h"

namespace capstan::test {

// A model of 1.3 B parameters, trained with samples of 1024 tokens; no data.
inline PlannedTask task_of_1b(int64_t global_batch_size = 32) {
  PlannedTask task;
  task.recipe.global_batch_size = global_batch_size;
  TrainOptions& o = task.options;
  o.device = Device::cuda;
  o.model.vocab = 32000;
  o.model.hidden = 2048;
  o.model.intermediate = 5504;
  o.model.layers = 24;
  o.model.heads = o.model.kv_heads = 16;
  o.model.head_dim = 128;
  o.precision = Precision::bf16_mixed;
  o.limits = {.tokens = 1024, .documents = 1, .longest = 1024};
  return task;
}

inline GpuModel gpu(const char* id) {
  return gpu_catalogue().named(id);
}

}  // namespace capstan::test
