#include "plan/pytorch_ratio.h"

namespace capstan {

PyTorchRatio pytorch_ratio(const TrainOptions& options) {
  if (options.lora && options.quantize != Quantize::none) return {1.82, 3.5, "unsloth and PEFT"};
  if (options.lora) return {1.26, 2.40, "compiled LitGPT and PEFT"};
  constexpr int64_t kLong = 2048;
  return {1.04, options.limits.longest > kLong ? 1.80 : 1.29, "compiled"};
}

}  // namespace capstan
