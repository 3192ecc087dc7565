#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "recipe/recipe_input.h"
#include "train/balance.h"
#include "train/setup.h"

namespace capstan::test {

// A recipe for a small model on a mesh of few ranks, drawn at random from what a user could ask
// for. Much of it cannot be, and must be refused as a usage error. The numbers are fields, so that
// a test may change one of them; the rest are keys as a user writes them.
struct RandomRun {
  Task task = Task::pretrain;
  ModelConfig model;
  int tensor = 1, context = 1, pipeline = 1, data = 1;  // ranks
  int64_t micro_batches = 1;                            // of each rank in a step
  int64_t micro_batch = 1, length = 1;                  // samples, and tokens of each
  std::map<std::string, std::string> keys;

  explicit RandomRun(uint64_t seed) : random_(seed) {
    draw_model();
    draw_run();
    draw_mesh();
  }

  int ranks() const { return tensor * context * pipeline * data; }

  // Throws Fault::usage if it cannot be.
  Recipe recipe() const {
    RecipeInput input(task, defaults_of(task));
    for (const auto& [key, value] : keys) input.set(key, value);
    const auto set = [&](const char* key, int64_t value) { input.set(key, std::to_string(value)); };
    set("devices", ranks());
    set("tensor_parallel", tensor);
    set("context_parallel", context);
    set("pipeline_parallel", pipeline);
    set("train.micro_batch_size", micro_batch);
    set("train.global_batch_size", micro_batch * micro_batches * data);
    set("train.max_seq_length", length);
    return input.finish();
  }
  // Those of the first rank. The stages of a pipeline are cut, so that they stay the same if a test
  // changes something else.
  TrainOptions options() const {
    check_config(model);
    const Recipe r = recipe();
    TrainOptions o = worst_case_options(r, task, model);
    set_ranks(o, r, {0, ranks()}, {});
    o.pipeline.cuts = cuts_of(o);
    return o;
  }
  std::string text() const {
    std::string s = fmt::format(
        "{}, vocab {}, hidden {}, intermediate {}, {} layers, {} heads for {} of {}{}, tensor {}, "
        "context {}, pipeline {}, data {}, {} micro-batches of {} x {}",
        name_of(task), model.vocab, model.hidden, model.intermediate, model.layers, model.heads,
        model.kv_heads, model.head_dim, model.tied ? ", tied" : "", tensor, context, pipeline, data,
        micro_batches, micro_batch, length);
    for (const auto& [key, value] : keys) s += fmt::format(", {}: {}", key, value);
    return s;
  }
  // One of these, also for the test's own choices.
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

 private:
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool one_in(uint64_t n) { return random_() % n == 0; }

  void draw_model() {
    model.layers = between(2, 6);
    model.head_dim = one_of({4, 8, 16, 32});
    model.kv_heads = one_of({1, 2, 4});
    model.heads = one_in(10) ? between(1, 9) : model.kv_heads * one_of({1, 2, 4});
    model.hidden = one_in(3) ? between(8, 64) * 4 : between(1, 8) * 32;
    model.intermediate = one_in(3) ? between(8, 700) : between(1, 10) * 64;
    model.vocab = between(32, 2000);
    model.tied = one_in(4);
    model.qkv_bias = one_in(4);
    model.max_positions = 4096;
  }
  void draw_run() {
    task = one_of({Task::pretrain, Task::finetune_full, Task::finetune_lora});
    micro_batches = one_of({1, 2, 3, 5});
    micro_batch = between(1, 6);
    length = one_in(2) ? between(1, 200) : between(1, 16) * 16;
    keys["accelerator"] = one_of({"cpu", "cuda"});
    keys["precision"] =
        one_of({"32-true", "bf16-true", "bf16-mixed", "16-true", "16-mixed", "fp8-mixed"});
    keys["activations"] = one_of({"none", "selective", "block", "selective:1", "block:2"});
    keys["optimizer"] = one_of({"AdamW", "AdamW", "SGD", "AdamW8bit", "PagedAdamW"});
    if (keys["optimizer"] == "SGD" && one_in(2)) keys["optimizer.momentum"] = "0.9";
    keys["train.save_async"] = one_of({"true", "false"});
    if (task != Task::pretrain) keys["eval.max_new_tokens"] = one_of({"null", "7", "100"});
    if (task != Task::finetune_lora) return;
    keys["quantize"] = one_of({"null", "null", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.int8"});
    keys["lora_r"] = std::to_string(between(1, 16));
    keys["lora_dropout"] = one_of({"0", "0.05"});
    for (const char* map : {"query", "key", "value", "projection", "mlp", "head"})
      keys[std::string("lora_") + map] = one_of({"true", "true", "false"});
  }
  void draw_mesh() {
    const auto share = [&] { return one_of({1, 1, 1, 2, 4}); };
    tensor = share();
    context = share();
    pipeline = share();
    while (tensor * context * pipeline > 8) (tensor > 1 ? tensor : context) /= 2;
    data = one_of({1, 2, 4});
    keys["strategy"] = one_of({"auto", "ddp", "zero1", "zero2", "zero3", "zero1_offload"});
    if (pipeline > 1) keys["pipeline_schedule"] = one_of({"1f1b", "interleaved:2", "zero_bubble"});
    if (tensor > 1) keys["tensor_parallel_overlap"] = one_of({"auto", "true", "false"});
  }

  std::mt19937_64 random_;
};

// Calls body(run, options of one of its ranks) for those of so many recipes that can be, and
// returns how many. What cannot be must be a usage error, whether the recipe or what the body makes
// of it.
template <class Body>
int for_each_plan(uint64_t first_seed, int recipes, const Body& body) {
  int possible = 0;
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(recipes); ++seed) {
    RandomRun run(seed);
    try {
      TrainOptions o = run.options();
      o.ranks.rank = run.one_of({0, o.ranks.size / 2, o.ranks.size - 1});
      const MemoryPlan plan = Trainer::plan(o).device;
      ++possible;
      body(run, o, plan);
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::usage) << e.what() << "\n" << run.text();
    }
  }
  return possible;
}

}  // namespace capstan::test
