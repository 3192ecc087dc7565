// Plans of published models whose memory is known from elsewhere.
#include <gtest/gtest.h>

#include <string>

#include "model/known_models.h"
#include "plan/fit.h"
#include "train/setup.h"

namespace capstan {
namespace {

constexpr int64_t kGB = 1'000'000'000;

// One sample of 512 tokens in bf16, and nothing saved meanwhile.
Recipe one_sample(Task task) {
  Recipe r = defaults_of(task);
  r.precision = Precision::bf16_true;
  r.micro_batch_size = 1;
  r.max_seq_length = 512;
  r.save_async = false;
  r.eval_max_new_tokens = std::nullopt;
  return r;
}

TrainOptions options(const std::string& model, Task task, const Recipe& r) {
  return worst_case_options(r, task, known_model(model).value());
}

MemoryPlan plan(const std::string& model, Task task, Quantize quantize = Quantize::none) {
  Recipe r = one_sample(task);
  r.quantize = quantize;
  return Trainer::plan(options(model, task, r)).device;
}

int64_t weights(const MemoryPlan& plan) {
  return plan.highest[static_cast<size_t>(Category::weights)];
}

int64_t adapters_of(const std::string& model) {
  Recipe r = one_sample(Task::finetune_lora);
  r.lora_r = 8;
  const TrainOptions o = options(model, Task::finetune_lora, r);
  return make_spec(o.model, o.decay, o.lora, o.quantize).trainable_count();
}

TEST(KnownAnswers, AdaptersOfRankEightOnQueryAndValue) {
  EXPECT_EQ(adapters_of("Llama-2-7b"), 4'194'304);
  EXPECT_EQ(adapters_of("Llama-2-13b"), 6'553'600);
}

TEST(KnownAnswers, WhatDoubleQuantizationSaves) {
  for (const auto& [model, saved] :
       {std::pair{"Llama-2-7b", 0.302}, std::pair{"Llama-2-13b", 0.592}}) {
    const int64_t once = weights(plan(model, Task::finetune_lora, Quantize::nf4));
    const int64_t twice = weights(plan(model, Task::finetune_lora, Quantize::nf4_dq));
    EXPECT_NEAR(static_cast<double>(once - twice) / kGB, saved, 0.0005) << model;
  }
}

// Dettmers et al., 2023: rank 64 on every linear map, one GPU of 48 GB.
TEST(KnownAnswers, SixtyFiveBillionParametersFitFortyEightGigabytes) {
  Recipe r = one_sample(Task::finetune_lora);
  r.quantize = Quantize::nf4_dq;
  r.activations.policy = Recompute::block;
  r.lora_r = 64;
  r.lora_key = r.lora_projection = r.lora_mlp = true;
  EXPECT_LE(Trainer::plan(options("llama-65b", Task::finetune_lora, r)).device.total_bytes,
            48 * kGB);
  r.quantize = std::nullopt;
  EXPECT_GT(Trainer::plan(options("llama-65b", Task::finetune_lora, r)).device.total_bytes,
            48 * kGB);
}

TEST(KnownAnswers, AdaptersOfThirteenBillionFitFortyGigabytes) {
  EXPECT_LE(plan("open_llama_13b", Task::finetune_lora).total_bytes, 40 * kGB);
  EXPECT_GT(plan("open_llama_13b", Task::finetune_full).total_bytes, 40 * kGB);
}

TEST(KnownAnswers, QuantizedNeedsLessThanAdaptersAndTheseLessThanAllForEveryModel) {
  for (const std::string_view name : known_model_names()) {
    const std::string model(name);
    const int64_t full = plan(model, Task::finetune_full).total_bytes;
    const int64_t lora = plan(model, Task::finetune_lora).total_bytes;
    int64_t more = lora;
    for (const Quantize kind : {Quantize::int8, Quantize::nf4, Quantize::nf4_dq}) {
      const int64_t less = plan(model, Task::finetune_lora, kind).total_bytes;
      EXPECT_LT(less, more) << model << ", " << name_of(kind);
      more = less;
    }
    EXPECT_LT(lora, full) << model;
  }
}

}  // namespace
}  // namespace capstan
