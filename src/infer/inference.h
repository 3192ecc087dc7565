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
  BatchLimits limits;     // of batches to evaluate; without tokens: none
  int64_t positions = 0;  // of text to generate; 0: none
  std::optional<LoraOptions> lora = {};
  Quantize quantize = Quantize::none;  // of the linear maps
  bool logits = false;                 // of texts of limits.tokens at most will be asked for
  bool merge = false;                  // the adapter will be merged
};

// What a checkpoint is used in when nobody says: on a GPU bf16, as LitGPT has it and as training
// computes there; on a CPU bf16 for one in bf16, else f32 (bf16 would drop three bits of an f16).
// Throws Fault::usage for precisions that are for training.
Precision inference_precision(const std::string& asked, const ModelConfig& model, Device device);

// A model that is used and not trained, on one device. All memory is taken by the constructor and
// within the phases "evaluate", "logits", "decode" and "merge", from the plan.
class Inference {
 public:
  Inference(Queue& q, const InferenceOptions& options);
  // The program run on `sim`, as on options.device.
  static MemoryPlan plan(const InferenceOptions& options);

  Parameters& params() { return params_; }
  Decoder& decoder() { return *decoder_; }
  // f32 [tokens, vocab]: those after every token of a text. Throws Fault::usage for tokens that are
  // not in the vocabulary.
  std::vector<float> logits(std::span<const int32_t> ids);
  // Writes the model with the adapter folded in (MergedWeights, write_model). Stays as it is.
  Manifest write_merged(const std::filesystem::path& folder, DType dtype,
                        const std::string& config_like = {});
  // Of the micro-batches that were started.
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

// What ends a text that a model of this prompting generates: its eos tokens, and what ends an
// answer of the style, or a turn of the chat template.
void set_stops(GenerateOptions& options, const ModelConfig& model, const Tokenizer& tokenizer,
               const ModelPrompting& prompting);

// Throws Fault::does_not_fit unless so many bytes are available, naming the space and what would
// need less of it.
void require_fit(const InferenceOptions& options, int64_t needed, int64_t available);

// options with the model, lora and quantize that the files have.
InferenceOptions options_of(const ModelFiles& files, InferenceOptions options);

// A model loaded for use, with its adapter where it has one: plans, refuses what does not fit on
// options.device (Fault::does_not_fit) or a device that is not there (Fault::device), and loads,
// tensor by tensor. The options' model, lora and quantize are taken from the files.
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
