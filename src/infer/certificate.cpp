#include "infer/certificate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/units.h"
#include "machine/memory.h"

namespace capstan {
namespace {

constexpr uint64_t kRandomPrompts = 4;
constexpr int64_t kRandomTokens = 24;

double difference(std::span<const float> found, std::span<const float> expected) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i], d = found[i] - e;
    apart += d * d;
    size += e * e;
  }
  // Logits that are all zero have no relative difference.
  return size > 0 ? std::sqrt(apart / size) : std::sqrt(apart);
}

Agreement agreement_of(std::span<const float> found, std::span<const float> expected,
                       size_t vocab) {
  Agreement a;
  for (size_t at = 0; at < expected.size(); at += vocab) {
    const double d = difference(found.subspan(at, vocab), expected.subspan(at, vocab));
    if (!(d <= a.difference)) a.difference = d;
    if (std::isnan(d)) break;
  }
  const Sampling greedy{.temperature = 0};
  a.same_next =
      choose_token(found.last(vocab), greedy, 0) == choose_token(expected.last(vocab), greedy, 0);
  return a;
}

}  // namespace

std::vector<Prompt> random_prompts(const ModelConfig& config) {
  const auto tokens = static_cast<uint64_t>(std::min(kRandomTokens, config.max_positions));
  std::vector<Prompt> prompts(kRandomPrompts);
  for (uint64_t p = 0; p < kRandomPrompts; ++p) {
    const Rng rng({.seed = 1234, .sample = p, .site = site::sampling});
    for (uint64_t i = 0; i < tokens; ++i)
      prompts[p].tokens.push_back(
          static_cast<int32_t>(rng.below(i, static_cast<uint64_t>(config.vocab))));
  }
  return prompts;
}

InferenceOptions options_for(const std::vector<Prompt>& prompts, const ModelConfig& config,
                             Device device) {
  int64_t longest = 0, tokens = 0;
  for (const Prompt& p : prompts) {
    longest = std::max(longest, std::ssize(p.tokens));
    tokens += std::ssize(p.tokens);
  }
  const double bytes =
      static_cast<double>(tokens) * static_cast<double>(config.vocab) * sizeof(float);
  const auto available = static_cast<double>(available_memory());
  require(bytes < available / 2, Fault::does_not_fit,
          "does not fit: the logits after {} of {} take {}, but {} are free; give fewer or shorter "
          "prompts",
          count(tokens, "token"), count(std::ssize(prompts), "prompt"), format_bytes(bytes),
          format_bytes(available));
  InferenceOptions options;
  options.device = device;
  options.precision = Precision::f32_true;
  options.limits = {.tokens = longest, .documents = 1, .longest = longest};
  options.logits = true;
  return options;
}

Logits logits_of(Inference& model, const std::vector<Prompt>& prompts) {
  Logits logits;
  for (const Prompt& p : prompts) logits.push_back(model.logits(p.tokens));
  return logits;
}

bool Certificate::holds() const {
  return std::all_of(prompts.begin(), prompts.end(),
                     [&](const Agreement& a) { return a.difference <= allowed; });
}

double Certificate::largest() const {
  double most = 0;
  for (const Agreement& a : prompts)
    if (std::isnan(a.difference) || a.difference > most) most = a.difference;
  return most;
}

int64_t Certificate::same_next() const {
  return std::count_if(prompts.begin(), prompts.end(),
                       [](const Agreement& a) { return a.same_next; });
}

Certificate compare(const Logits& found, const Logits& expected, int64_t vocab, double allowed) {
  require(found.size() == expected.size(), Fault::bug, "certificate: {} prompts of {}",
          found.size(), expected.size());
  Certificate c{.allowed = allowed, .prompts = {}};
  for (size_t p = 0; p < expected.size(); ++p) {
    require(!expected[p].empty() && found[p].size() == expected[p].size(), Fault::bug,
            "certificate: {} logits of {}", found[p].size(), expected[p].size());
    c.prompts.push_back(agreement_of(found[p], expected[p], static_cast<size_t>(vocab)));
  }
  return c;
}

Certificate certify(const ModelFiles& model, const std::vector<Prompt>& prompts,
                    const Logits& expected, double allowed, Device device) {
  LoadedModel loaded(model, options_for(prompts, model.config, device));
  return compare(logits_of(loaded.model(), prompts), expected, model.config.vocab, allowed);
}

double allowed_difference(DType stored) {
  return stored == DType::f32 ? 1e-4 : 3e-2;
}

std::string certificate_json(const Certificate& c, const MergeRecord& record) {
  nlohmann::ordered_json out = {{"format", 1},
                                {"adapter", record.adapter},
                                {"adapter_sha256", record.adapter_sha256},
                                {"base", record.base},
                                {"quantize", nullptr},
                                {"dtype", name_of(record.dtype)},
                                {"prompts", c.prompts.size()},
                                {"random_prompts", record.random_prompts},
                                {"same_next_token", c.same_next()},
                                {"largest_difference", c.largest()},
                                {"allowed_difference", c.allowed}};
  if (record.quantize != Quantize::none) out["quantize"] = name_of(record.quantize);
  // A folder's name may not be UTF-8.
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace capstan
