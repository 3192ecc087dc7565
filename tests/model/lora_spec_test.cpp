#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/adapter.h"
#include "support/message_of.h"

namespace capstan {
namespace {

ModelConfig llama(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads,
                  int64_t kv_heads) {
  ModelConfig c;
  c.vocab = 32000;
  c.hidden = hidden;
  c.intermediate = intermediate;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  return c;
}

LoraOptions every_map() {
  LoraOptions o;
  o.query = o.key = o.value = o.projection = o.mlp = o.head = true;
  return o;
}

TEST(LoraSpec, CountsTheTrainablesOfKnownModels) {
  const auto count = [](const ModelConfig& c, const LoraOptions& o) {
    return make_spec(c, Decay::all, o).trainable_count();
  };
  const ModelConfig llama7b = llama(4096, 11008, 32, 32, 32);
  EXPECT_EQ(count(llama7b, {}), 4194304) << "r=8 on queries and values";
  EXPECT_EQ(count(llama(5120, 13824, 40, 40, 40), {}), 6553600);
  LoraOptions linears = every_map();
  linears.head = false;
  linears.r = 16;
  EXPECT_EQ(count(llama7b, linears), 39976960) << "as PEFT's print_trainable_parameters has it";
}

TEST(LoraSpec, BaseRowsKeepTheirPlacesAndAreFrozen) {
  const ModelConfig config = llama(64, 96, 2, 4, 2);
  const ModelSpec plain = make_spec(config), spec = make_spec(config, Decay::all, every_map());
  ASSERT_GT(spec.params.size(), plain.params.size());
  for (size_t i = 0; i < spec.params.size(); ++i) {
    const bool base = i < plain.params.size();
    EXPECT_EQ(spec.params[i].trainable, !base);
    EXPECT_EQ(spec.params[i].adapter, !base);
    if (base) {
      EXPECT_EQ(spec.params[i].name, plain.params[i].name);
    }
  }
  EXPECT_EQ(plain.lowest_trainable_unit(), 0);
  EXPECT_EQ(spec.lowest_trainable_unit(), 1);
  LoraOptions head_alone{.query = false, .value = false, .head = true};
  EXPECT_EQ(make_spec(config, Decay::all, head_alone).lowest_trainable_unit(), 3);
}

TEST(LoraSpec, FusedMapsHaveOneAdapterOfSeveralParts) {
  LoraOptions o;  // queries and values
  o.r = 3;
  const ModelSpec spec = make_spec(llama(64, 96, 2, 4, 2), Decay::all, o);
  const BlockIndex& block = spec.blocks[1];
  EXPECT_FALSE(block.o_lora);
  EXPECT_FALSE(block.gate_up_lora);
  EXPECT_FALSE(block.down_lora);
  EXPECT_FALSE(spec.head_lora);
  const AdapterIndex& at = block.qkv_lora;
  ASSERT_TRUE(at);
  const Param& a = spec.params[static_cast<size_t>(at.a)];
  const Param& b = spec.params[static_cast<size_t>(at.b)];
  EXPECT_EQ(a.shape, (Shape{6, 64}));
  EXPECT_EQ(b.shape, (Shape{64 + 32, 3}));
  EXPECT_EQ(a.unit, 2);
  ASSERT_EQ(a.parts.size(), 2U);
  EXPECT_EQ(a.parts[1].name, "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight");
  EXPECT_EQ(a.parts[1].first_row, 3);
  EXPECT_EQ(b.parts[1].name, "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight");
  EXPECT_EQ(b.parts[1].first_row, 64);
  ASSERT_EQ(at.columns.size(), 2U);
  EXPECT_EQ(at.columns[1].first, 64 + 32) << "after queries and keys";
  EXPECT_EQ(at.columns[1].count, 32);
}

TEST(LoraSpec, EveryAdapterDropsAtAPlaceOfItsOwn) {
  const ModelSpec spec = make_spec(llama(64, 96, 3, 4, 2), Decay::all, every_map());
  std::set<int> numbers = {spec.head_lora.number};
  for (const BlockIndex& b : spec.blocks)
    for (const AdapterIndex& at : {b.qkv_lora, b.o_lora, b.gate_up_lora, b.down_lora})
      numbers.insert(at.number);
  EXPECT_EQ(numbers.size(), 3 * 4 + 1U);
}

TEST(LoraSpec, ATiedHeadHasAnAdapterOfItsOwn) {
  ModelConfig config = llama(64, 96, 2, 4, 2);
  config.tied = true;
  const ModelSpec spec = make_spec(config, Decay::all, every_map());
  const Param& a = spec.params[static_cast<size_t>(spec.head_lora.a)];
  EXPECT_EQ(a.parts[0].name, "base_model.model.lm_head.lora_A.weight");
  EXPECT_EQ(a.unit, 3);
  EXPECT_FALSE(spec.trainable(spec.embedding));
}

TEST(LoraSpec, RefusesOptionsThatMakeNoSense) {
  const auto refusal = [](const LoraOptions& o) {
    return message_of(Fault::usage, [&] { make_spec(llama(64, 96, 2, 4, 2), Decay::all, o); });
  };
  EXPECT_NE(refusal({.r = 0}).find("lora_r"), std::string::npos);
  EXPECT_NE(refusal({.dropout = 1}).find("lora_dropout"), std::string::npos);
  EXPECT_NE(refusal({.query = false, .value = false}).find("lora_query"), std::string::npos);
}

TEST(LoraSpec, ScaleIsAlphaOverTheRankOrItsRoot) {
  EXPECT_EQ((LoraOptions{.r = 16, .alpha = 32}.scale()), 2);
  EXPECT_EQ((LoraOptions{.r = 16, .alpha = 32, .rslora = true}.scale()), 8);
}

// Frozen rows are stored in the type they are computed with, once.
TEST(LoraParameters, OnlyAdaptersHaveMastersAndGradients) {
  Arena arena{Arena::Heap{}};
  const ModelConfig config = llama(64, 96, 2, 4, 2);
  Parameters params(arena, make_spec(config, Decay::all, every_map()), Precision::bf16_mixed,
                    Gradients::kept);
  for (int i = 0; i < params.count(); ++i) {
    const bool adapter = params.spec().params[static_cast<size_t>(i)].adapter;
    EXPECT_EQ(params.weight(i).dtype(), DType::bf16);
    EXPECT_EQ(static_cast<bool>(params.master(i)), adapter);
    EXPECT_EQ(static_cast<bool>(params.grad(i)), adapter);
    EXPECT_EQ(params.stored(i).dtype(), adapter ? DType::f32 : DType::bf16);
  }
}

TEST(LoraParameters, BeginAsPeftDoes) {
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  Parameters params(arena, make_spec(llama(64, 96, 2, 4, 2), Decay::all, every_map()),
                    Precision::f32_true, Gradients::none);
  const float mark = 0.25f;
  *params.weight(0).as<float>() = mark;
  params.initialize_adapters(q, 5);
  EXPECT_EQ(*params.weight(0).as<float>(), mark) << "the base is left alone";
  const auto largest = [&](int i) {
    float most = 0;
    const Tensor w = params.weight(i);
    for (int64_t k = 0; k < w.numel(); ++k) most = std::max(most, std::abs(w.as<float>()[k]));
    return most;
  };
  const AdapterIndex& down = params.spec().blocks[0].down_lora;
  EXPECT_LE(largest(down.a), 1 / std::sqrt(96.0f));
  EXPECT_GT(largest(down.a), 0.98f / std::sqrt(96.0f));
  EXPECT_EQ(largest(down.b), 0);
}

}  // namespace
}  // namespace capstan
