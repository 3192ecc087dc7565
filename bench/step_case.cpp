#include "step_case.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "bench/step_times.h"

namespace capstan::bench {
namespace {

const std::map<std::string, Sizes> kModels = {
    {"1m", {128, 352, 4, 4, 4, 259}},
    {"15m", {288, 768, 6, 6, 6, 32000}},
    {"110m", {768, 2048, 12, 12, 12, 32000}},
    {"tinyllama", {2048, 5632, 22, 32, 4, 32000}},
    {"openllama-7b", {4096, 11008, 32, 32, 32, 32000}},
    {"openllama-13b", {5120, 13824, 40, 40, 40, 32000}},
};

std::vector<std::string> words_of(const std::string& text, char between) {
  std::vector<std::string> words;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, between);) words.push_back(word);
  return words;
}

Variant parse_variant(const std::string& name) {
  if (name.find("Adam") != std::string::npos)
    return {.name = name, .optimizer = parse_named<OptimizerClass>("optimizer", name)};
  Variant v{name, LoraOptions()};
  if (name.starts_with("qlora")) v.quantize = Quantize::nf4;
  if (name.ends_with("lora")) return v;
  require(name.ends_with("lora-all"), Fault::usage,
          "'{}': expected lora, lora-all, qlora or qlora-all", name);
  v.lora->r = 32;
  v.lora->key = v.lora->projection = v.lora->mlp = true;
  return v;
}

ModelConfig config_of(const Sizes& s) {
  ModelConfig c;
  c.vocab = s.vocab;
  c.hidden = s.hidden;
  c.intermediate = s.intermediate;
  c.layers = s.layers;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.hidden / s.heads;
  return c;
}

}  // namespace

Case parse(const std::string& text) {
  const std::vector<std::string> words = words_of(text, ':');
  require(
      words.size() >= 5 && words.size() <= 9 && kModels.contains(words[0]), Fault::usage,
      "'{}' is not a case: expected "
      "model:precision:micro_batch:seq:accumulation[:activations[:N]][:ways][:tf32|:stochastic]"
      "[:offload[:8bit]], with one of the models 1m, 15m, 110m, tinyllama, openllama-7b and -13b",
      text);
  Case c{text,
         kModels.at(words[0]),
         parse_named<Precision>("precision", words[1]),
         std::stoll(words[2]),
         std::stoll(words[3]),
         std::stoll(words[4])};
  for (size_t i = 5; i < words.size(); ++i) {
    const std::pair<const char*, bool*> flags[] = {{"tf32", &c.tf32},
                                                   {"stochastic", &c.stochastic},
                                                   {"offload", &c.offload},
                                                   {"8bit", &c.few_bits}};
    const auto* const flag = std::find_if(std::begin(flags), std::end(flags),
                                          [&](const auto& f) { return words[i] == f.first; });
    if (flag != std::end(flags)) {
      *flag->second = true;
      continue;
    }
    if (words[i].find("lora") == std::string::npos && words[i].find("Adam") == std::string::npos) {
      const bool counted = i + 1 < words.size() && std::isdigit(words[i + 1][0]) != 0;
      c.recompute = parse_recomputation(counted ? words[i] + ":" + words[i + 1] : words[i]);
      i += counted ? 1 : 0;
      continue;
    }
    for (const std::string& name : words_of(words[i], '+'))
      c.variants.push_back(parse_variant(name));
  }
  return c;
}

Dataset random_samples(const Case& c) {
  return random_documents(c.micro_batch * c.accumulation, c.seq, c.model.vocab);
}

TrainOptions options_of(const Case& c, const Variant& v, const BatchLimits& limits) {
  TrainOptions o;
  o.device = cuda_present() ? Device::cuda : Device::cpu;
  o.model = config_of(c.model);
  o.precision = c.precision;
  o.recompute = c.recompute;
  o.limits = limits;
  o.single_micro_batch = c.accumulation == 1;
  o.tf32 = c.tf32;
  o.sharding.offload = c.offload;
  o.optimizer = {.kind = c.few_bits ? OptimizerKind::adamw8bit : v.optimizer.kind,
                 .paged = v.optimizer.paged,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .stochastic = c.stochastic};
  o.schedule = {.lr = 1e-4, .decay = Schedule::Decay::constant};
  o.lora = v.lora;
  o.quantize = v.quantize;
  return o;
}

}  // namespace capstan::bench
