#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "data/data_source.h"
#include "infer/evaluation.h"
#include "infer/model_files.h"
#include "model/decoder.h"

namespace capstan {

struct InferenceOptions {
  Device device = Device::cpu;
  ModelConfig model;
  Precision precision = Precision::f32_true;
  bool tf32 = false;      // products of 32-true on cuda are in TF32, if it has that
  BatchLimits limits;     // limits of batches to evaluate; without tokens: none
  int64_t positions = 0;  // positions of the KV cache; 0: no generation
  std::optional<LoraOptions> lora = {};
  Quantize quantize = Quantize::none;  // of the linear layers
  bool logits = false;  // the logits of texts of up to limits.tokens will be computed
  bool merge = false;   // the adapter will be merged
};

// The default precision for inference: on a GPU bf16 (f16 without it), as in LitGPT; on a CPU bf16
// for a bf16 checkpoint, else f32 (bf16 would drop three bits of an f16). Throws Fault::usage for
// precisions that are for training.
Precision inference_precision(const std::string& asked, const ModelConfig& model, Device device);

// A model for inference on one device. Allocates all memory from the plan, in the constructor and
// in the phases "evaluate", "logits", "decode" and "merge".
class Inference {
 public:
  Inference(Queue& q, const InferenceOptions& options);
  // Runs the program on `sim` to plan options.device.
  static MemoryPlan plan(const InferenceOptions& options);

  Parameters& params() { return params_; }
  Decoder& decoder() { return *decoder_; }
  // f32 [tokens, vocab]: the logits after every token of a text. Throws Fault::usage for tokens
  // outside the vocabulary.
  std::vector<float> logits(std::span<const int32_t> ids);
  // Writes the model with the adapter merged (MergedWeights, write_model). Does not change this
  // model.
  Manifest write_merged(const std::filesystem::path& folder, DType dtype,
                        const std::string& config_like = {});
  // The loss of the micro-batches that were started.
  Evaluation evaluate(MicroBatches& data);

 private:
  void rehearse();
  std::vector<float> logits_of(const Batch& batch);

  Queue& q_;
  bool logits_, merges_;
  Parameters params_;
  Transformer model_;
  std::unique_ptr<DeviceBatch> batch_;
  Buffer loss_;
  std::unique_ptr<Decoder> decoder_;
};

// Sets what ends a generated text: the model's eos tokens, and the stop sequences of the prompt
// style or the end of a turn of the chat template.
void set_stops(GenerateOptions& options, const ModelConfig& model, const Tokenizer& tokenizer,
               const ModelPrompting& prompting);

// Throws Fault::does_not_fit unless this many bytes are available, naming the memory space and what
// would need less.
void require_fit(const InferenceOptions& options, int64_t needed, int64_t available);

// The options with the model, lora and quantize of the files.
InferenceOptions options_of(const ModelFiles& files, InferenceOptions options);

// A model loaded for inference, with its adapter if it has one. Plans; throws Fault::does_not_fit
// if it does not fit on options.device, or Fault::device if the device is missing; and loads tensor
// by tensor. The options' model, lora and quantize come from the files.
class LoadedModel {
 public:
  LoadedModel(const ModelFiles& files, const InferenceOptions& options);

  Queue& queue() { return queue_; }
  Inference& model() { return model_; }

 private:
  MemoryPlan plan_;
  Arena arena_;
  Queue queue_;
  Inference model_;
};

}  // namespace capstan
