#pragma once

#include <string>
#include <vector>

#include "infer/inference.h"

// Checks on examples that one model answers like another: compares the logits after every token of
// some prompts. The two models need not be in memory together.
namespace capstan {

inline constexpr const char* kCertificateFile = "merge_certificate.json";

struct Prompt {
  std::string text;  // empty: random tokens
  std::vector<int32_t> tokens;
};

// Four prompts of 24 tokens, or fewer if the model's limit is lower; the same for the same
// vocabulary.
std::vector<Prompt> random_prompts(const ModelConfig& config);

// Options to load a model for the logits of these prompts: in f32 (also on a GPU), with capacity
// for the longest. Throws Fault::does_not_fit if the logits, which stay on the host, would not fit
// in memory.
InferenceOptions options_for(const std::vector<Prompt>& prompts, const ModelConfig& config,
                             Device device = Device::cpu);

using Logits = std::vector<std::vector<float>>;  // for each prompt: [tokens, vocab]
Logits logits_of(Inference& model, const std::vector<Prompt>& prompts);

// The distance from the expected logits after one prompt: the largest ‖found - expected‖ /
// ‖expected‖ over its positions (NaN if any is NaN); and whether the most likely next token is the
// same.
struct Agreement {
  double difference = 0;
  bool same_next = true;
};

struct Certificate {
  double allowed = 0;
  std::vector<Agreement> prompts;

  bool holds() const;      // no difference exceeds the limit or is NaN
  double largest() const;  // NaN if any is
  int64_t same_next() const;
};

Certificate compare(const Logits& found, const Logits& expected, int64_t vocab, double allowed);

// Loads the model, verifies its files if Capstan wrote them, and compares. On the device of the
// expected logits, only the weights can cause a difference.
Certificate certify(const ModelFiles& model, const std::vector<Prompt>& prompts,
                    const Logits& expected, double allowed, Device device = Device::cpu);

// The difference that rounding explains: of the merged weights to their stored type, and of f32
// sums in another order.
double allowed_difference(DType stored);

// The text of merge_certificate.json.
struct MergeRecord {
  std::string adapter, adapter_sha256, base;
  Quantize quantize = Quantize::none;  // of the base that the adapter was merged into
  DType dtype = DType::f32;            // of the merged weights
  int64_t random_prompts = 0;
};
std::string certificate_json(const Certificate& certificate, const MergeRecord& record);

}  // namespace capstan
