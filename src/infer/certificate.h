#pragma once

#include <string>
#include <vector>

#include "infer/inference.h"

// Shows on examples that a model answers as another one did: the logits after every token of some
// prompts are compared. The two need not be in memory together.
namespace capstan {

inline constexpr const char* kCertificateFile = "merge_certificate.json";

struct Prompt {
  std::string text;  // empty: the tokens were drawn
  std::vector<int32_t> tokens;
};

// Four prompts of 24 tokens, or of what the model can; the same for the same vocabulary.
std::vector<Prompt> random_prompts(const ModelConfig& config);

// What a model must be loaded with for the logits of these prompts: in f32 (which is f32 on a GPU,
// too), with room for the longest. Throws Fault::does_not_fit where the logits, which are kept on
// the host, would not fit in memory.
InferenceOptions options_for(const std::vector<Prompt>& prompts, const ModelConfig& config,
                             Device device = Device::cpu);

using Logits = std::vector<std::vector<float>>;  // of each prompt: [tokens, vocab]
Logits logits_of(Inference& model, const std::vector<Prompt>& prompts);

// How far a model is from the expected logits after one prompt: the largest ‖found - expected‖ /
// ‖expected‖ of its positions, NaN where there is one; and whether the most likely token after the
// last is the same.
struct Agreement {
  double difference = 0;
  bool same_next = true;
};

struct Certificate {
  double allowed = 0;
  std::vector<Agreement> prompts;

  bool holds() const;      // no difference above what is allowed, and none is NaN
  double largest() const;  // NaN where one is
  int64_t same_next() const;
};

Certificate compare(const Logits& found, const Logits& expected, int64_t vocab, double allowed);

// Loads the model, checking its files where Capstan wrote them, and compares. On the device that
// the expected logits are of, the difference is that of the weights alone.
Certificate certify(const ModelFiles& model, const std::vector<Prompt>& prompts,
                    const Logits& expected, double allowed, Device device = Device::cpu);

// What rounding explains: of merged weights once more to the type that they are stored in, and of
// sums in f32 that are taken in another order.
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
