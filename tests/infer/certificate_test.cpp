// A merged model is compared with what it was merged from; the comparison can fail.

#include "infer/certificate.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/save_model.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include "train/engine.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

ModelConfig small_config(DType dtype = DType::f32) {
  ModelConfig c = uneven_config();
  c.max_positions = 64;
  c.o_bias = true;
  c.dtype = dtype;
  return c;
}

// A drawn model in a folder; `change` may do something to it first.
template <class Change>
void write_base(const fs::path& folder, const ModelConfig& config, const Change& change) {
  Engine e(config);
  e.params.initialize(e.q, 7);
  change(e.params);
  save_model(e.q, e.params, folder, {.dtype = config.dtype});
}
void write_base(const fs::path& folder, const ModelConfig& config) {
  write_base(folder, config, [](Parameters&) {});
}

// A model of a folder with an adapter that was drawn.
struct Adapted {
  MemoryPlan plan;
  Arena arena;
  Queue q;
  Inference model;

  Adapted(const fs::path& base, const InferenceOptions& options)
      : plan(Inference::plan(options)),
        arena(plan, options.device),
        q(options.device, arena),
        model(q, options) {
    load_parameters(q, model.params(), base);
    model.params().initialize_adapters(q, 3);
    draw_zero_factors(q, model.params());
  }
};

InferenceOptions adapted_options(const std::vector<Prompt>& prompts, const ModelConfig& config,
                                 Quantize quantize, Device device = Device::cpu) {
  InferenceOptions o = options_for(prompts, config, device);
  o.model = config;
  o.lora = every_map(0);
  o.quantize = quantize;
  o.merge = true;
  return o;
}

CAPSTAN_ON_EVERY_DEVICE(CertificateOn);

TEST(Certificate, RandomPromptsAreTheModels) {
  ModelConfig config = small_config();
  config.max_positions = 5;
  const auto prompts = random_prompts(config);
  ASSERT_EQ(prompts.size(), 4u);
  for (const Prompt& p : prompts) {
    EXPECT_EQ(p.tokens.size(), 5u);
    for (const int32_t id : p.tokens) EXPECT_TRUE(id >= 0 && id < config.vocab);
  }
  EXPECT_NE(prompts[0].tokens, prompts[1].tokens);
}

TEST_P(CertificateOn, LogitsAreThoseOfDecodingAtEveryPosition) {
  const TempFolder folder;
  write_base(folder.path() / "base", small_config());
  const Prompt prompt{"", {1, 2, 3, 4, 5, 6, 66}};
  InferenceOptions options = options_for({prompt}, small_config(), GetParam());
  options.positions = 8;
  LoadedModel loaded(find_model((folder.path() / "base").string()), options);
  const std::vector<float> all = loaded.model().logits(prompt.tokens);
  for (size_t t = 0; t < prompt.tokens.size(); ++t) {
    const auto one = loaded.model().decoder().feed(loaded.queue(), {&prompt.tokens[t], 1});
    const auto at = all.begin() + static_cast<int64_t>(t * one.size());
    EXPECT_LT(error(Values(at, at + std::ssize(one)), Values(one.begin(), one.end())), 1e-5) << t;
  }
  EXPECT_NE(
      message_of(Fault::usage, [&] { loaded.model().logits(std::vector<int32_t>{67}); }).find("67"),
      std::string::npos);
}

TEST_P(CertificateOn, AChangedWeightFails) {
  const TempFolder folder;
  const ModelConfig config = small_config();
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  write_base(at("base"), config);
  // One value of the lowest block's down projection, by a tenth of its size.
  write_base(at("changed"), config, [](Parameters& params) {
    float* w = params.stored(params.spec().blocks[0].down).as<float>();
    w[5] += 0.1f * std::abs(w[5]) + 0.01f;
  });
  const auto prompts = random_prompts(config);
  Logits expected;
  {
    LoadedModel loaded(find_model(at("base")), options_for(prompts, config, GetParam()));
    expected = logits_of(loaded.model(), prompts);
  }
  const double allowed = allowed_difference(DType::f32);
  const Certificate same = certify(find_model(at("base")), prompts, expected, allowed, GetParam());
  EXPECT_TRUE(same.holds());
  EXPECT_EQ(same.largest(), 0);
  EXPECT_EQ(same.same_next(), 4);
  const Certificate changed =
      certify(find_model(at("changed")), prompts, expected, allowed, GetParam());
  EXPECT_FALSE(changed.holds()) << changed.largest();
}

TEST(Certificate, OnePositionOfOnePromptFails) {
  const Logits expected = {{1, 2, 3, 3, 2, 1}, {5, 1, 1}};
  Logits found = expected;
  EXPECT_TRUE(compare(found, expected, 3, 1e-6).holds());
  found[0][1] = 2.1f;  // not the last position
  const Certificate c = compare(found, expected, 3, 1e-6);
  EXPECT_FALSE(c.holds());
  EXPECT_NEAR(c.largest(), 0.1 / std::sqrt(14.0), 1e-6);
  EXPECT_EQ(c.prompts[1].difference, 0);
  EXPECT_TRUE(c.prompts[0].same_next);
  found[1] = {1, 5, 1};
  EXPECT_EQ(compare(found, expected, 3, 1e-6).same_next(), 1);
}

TEST(Certificate, WhatIsNotANumberFails) {
  const Logits expected = {{1, 2}, {3, 4}};
  for (const float wrong : {NAN, INFINITY}) {
    Logits found = expected;
    found[0][0] = wrong;
    EXPECT_FALSE(compare(found, expected, 2, 1).holds());
    EXPECT_FALSE(compare(expected, found, 2, 1).holds());
    EXPECT_FALSE(compare(expected, found, 2, 1).largest() <= 1);
  }
}

TEST_P(CertificateOn, MergesIntoTheValuesThatAQuantizedBaseStandsFor) {
  const TempFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const ModelConfig config = small_config(dtype);
    write_base(folder.path() / "base", config);
    const auto prompts = random_prompts(config);
    const double allowed = allowed_difference(dtype);
    const fs::path merged = folder.path() / "merged";
    std::optional<Logits> plain;
    for (const Quantize kind : {Quantize::none, Quantize::nf4, Quantize::nf4_dq, Quantize::fp4,
                                Quantize::fp4_dq, Quantize::int8}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(kind), name_of(dtype)));
      Adapted adapted(folder.path() / "base", adapted_options(prompts, config, kind, GetParam()));
      const Logits expected = logits_of(adapted.model, prompts);
      fs::remove_all(merged);
      fs::create_directories(merged);
      adapted.model.write_merged(merged, dtype);
      EXPECT_EQ(logits_of(adapted.model, prompts), expected) << "merging leaves it as it is";
      EXPECT_EQ(adapted.arena.allocated_bytes(), adapted.plan.total_bytes);
      const ModelFiles files = find_model(merged.string());
      const Certificate c = certify(files, prompts, expected, allowed, GetParam());
      EXPECT_TRUE(c.holds()) << c.largest();
      EXPECT_EQ(c.same_next(), dtype == DType::f32 ? 4 : c.same_next());
      if (!plain) plain = expected;
      // Eight bits may be as near to the original as bf16 is.
      const bool near = kind == Quantize::none || (kind == Quantize::int8 && dtype == DType::bf16);
      EXPECT_TRUE(near || !certify(files, prompts, *plain, allowed, GetParam()).holds());
    }
  }
}

// Not two models: the quantized one, and room for its largest tensor in f32.
TEST(Certificate, MergingTakesOneTensorMoreThanTheQuantizedModel) {
  ModelConfig config = small_config();
  config.hidden = 512;
  config.intermediate = 1536;
  config.layers = 6;
  config.heads = config.kv_heads = 8;
  config.head_dim = 64;
  const auto prompts = random_prompts(config);
  InferenceOptions o = adapted_options(prompts, config, Quantize::nf4);
  const auto workspace = [&] { return at(Inference::plan(o).highest, Category::workspace); };
  const int64_t merging = workspace();
  const int64_t total = Inference::plan(o).total_bytes;
  o.merge = false;
  const int64_t tensor = 512 * 1536 * 4, factors = 3 * (512 + 1536) * 4;
  EXPECT_LE(merging, workspace() + tensor + 2 * factors + 4096);
  EXPECT_GE(merging, tensor);
  o.quantize = Quantize::none;
  EXPECT_LT(total, Inference::plan(o).total_bytes / 2);
}

TEST(Certificate, IsWrittenAsJson) {
  const Certificate c{.allowed = 1e-4, .prompts = {{1e-7, true}, {2e-7, false}}};
  const auto json = nlohmann::json::parse(certificate_json(c, {.adapter = "out/final",
                                                               .adapter_sha256 = "abc",
                                                               .base = "checkpoints/tiny",
                                                               .quantize = Quantize::nf4,
                                                               .dtype = DType::bf16,
                                                               .random_prompts = 1}));
  const nlohmann::json expected = {{"format", 1},
                                   {"adapter", "out/final"},
                                   {"adapter_sha256", "abc"},
                                   {"base", "checkpoints/tiny"},
                                   {"quantize", "bnb.nf4"},
                                   {"dtype", "bf16"},
                                   {"prompts", 2},
                                   {"random_prompts", 1},
                                   {"same_next_token", 1},
                                   {"largest_difference", 2e-7},
                                   {"allowed_difference", 1e-4}};
  EXPECT_EQ(json, expected);
  EXPECT_TRUE(nlohmann::json::parse(certificate_json(c, {}))["quantize"].is_null());
}

}  // namespace
}  // namespace capstan::test
