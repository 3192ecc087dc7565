#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <sstream>

#include "model/known_models.h"
#include "plan/fit.h"
#include "plan/gpu_catalogue.h"
#include "random_run.h"

namespace capstan::test {

// A run that is to be judged: a recipe drawn at random, of a small model or a published one, with
// stages more often than not, and memory that is often just enough or just too little for it.
class RandomVerdict {
 public:
  using Keys = std::map<std::string, std::string>;

  // Throws Fault::usage if the run cannot be.
  explicit RandomVerdict(uint64_t seed) : run_(seed), random_(seed + 1) {
    if (one_in(16))
      draw_published();
    else
      draw_small();
    draw_mesh();
    keys_ = run_.keys;
    keys_["devices"] = std::to_string(run_.ranks());
    keys_["tensor_parallel"] = std::to_string(run_.tensor);
    keys_["context_parallel"] = std::to_string(run_.context);
    keys_["pipeline_parallel"] = std::to_string(run_.pipeline);
    keys_["train.micro_batch_size"] = std::to_string(run_.micro_batch);
    keys_["train.max_seq_length"] = std::to_string(run_.length);
    keys_["train.global_batch_size"] =
        std::to_string(run_.micro_batch * run_.micro_batches * run_.data);
    check_config(run_.model);
    draw_room();
  }

  // The options of its first rank, if some keys of the recipe are others.
  TrainOptions options(const Keys& others = {}) const {
    RecipeInput input(run_.task, defaults_of(run_.task));
    Keys keys = keys_;
    for (const auto& [key, value] : others) keys[key] = value;
    for (const auto& [key, value] : keys) input.set(key, value);
    const Recipe r = input.finish();
    TrainOptions o = worst_case_options(r, run_.task, run_.model);
    const auto machines = static_cast<int>(r.num_nodes);
    const int ranks = static_cast<int>(r.devices.count) * machines;
    set_ranks(o, r, {0, ranks}, {.room = machines > 1}, machines);
    return o;
  }
  int64_t number(const char* key) const { return std::stoll(keys_.at(key)); }
  int data_ranks() const { return run_.data; }
  const Room& room() const { return room_; }
  // What a rank with its recomputation, or if that is open with one that was drawn, needs most,
  // divided by what there is.
  double tightness() const { return tightness_; }
  std::string text() const {
    std::string s =
        fmt::format("{}, {} and {} bytes", name_of(run_.task), room_.device, room_.host);
    s += fmt::format(", hidden {}, {} layers", run_.model.hidden, run_.model.layers);
    for (const auto& [key, value] : keys_) s += fmt::format(", {}: {}", key, value);
    return s;
  }

  // What the rank that needs most needs in each memory space: every rank is planned, or of many an
  // even selection with the first and the last of each stage.
  static Room needed(const TrainOptions& options) {
    constexpr int kMost = 64;
    TrainOptions o = options;
    o.pipeline.cuts = cuts_of(options);
    const int in_stage = o.ranks.size / o.mesh.pipeline;
    const int step = (o.ranks.size - 1) / kMost + 1;
    Room most{0, 0};
    for (o.ranks.rank = 0; o.ranks.rank < o.ranks.size; ++o.ranks.rank) {
      const int in = o.ranks.rank % in_stage;
      if (o.ranks.rank % step != 0 && in != 0 && in != in_stage - 1) continue;
      const RunPlan plan = Trainer::plan(o);
      most.device = std::max(most.device, plan.device.total_bytes);
      most.host = std::max(most.host, plan.host.total_bytes);
    }
    return most;
  }
  bool has_room_for(const Room& needed) const {
    return needed.device <= room_.device && needed.host <= room_.host;
  }

 private:
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  bool one_in(uint64_t n) { return random_() % n == 0; }
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  double part() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // of 1

  void draw_small() {
    run_.model.layers = between(2, 24);
    run_.model.vocab = between(32, 4000);
    run_.length = between(1, 40) * 16;
    run_.micro_batches = between(1, 12);
    run_.micro_batch = one_of({1, 2, 4, 6});
  }
  void draw_published() {
    run_.model = *known_model(one_of({"TinyLlama-1.1B", "Llama-3.2-3B", "Qwen2.5-7B", "Qwen2.5-14B",
                                      "Llama-3.1-8B", "Qwen3-32B"}));
    run_.keys["accelerator"] = "cuda";
    run_.length = one_of({512, 1024, 2048, 4096});
    run_.micro_batches = one_of({1, 4, 8, 16});
    run_.micro_batch = one_of({1, 2, 4});
    gpu_ = one_of({"t4", "rtx4090", "l40s", "a100-40-sxm", "a100-80-sxm", "h200"});
  }
  void draw_mesh() {
    run_.pipeline = one_of({1, 2, 2, 3, 4, 4, 8});
    run_.tensor = one_of({1, 1, 1, 2, 4});
    run_.context = one_of({1, 1, 1, 2});
    run_.data = one_of({1, 1, 2, 4});
    run_.keys["activations"] =
        one_of({"auto", "auto", "auto", "none", "selective", "block", "selective:3", "block:2"});
    if (run_.pipeline > 1)
      run_.keys["pipeline_schedule"] =
          one_of({"1f1b", "interleaved:2", "interleaved:2", "interleaved:3", "zero_bubble"});
  }
  // Usually within a tenth of what some rank needs; else that of a GPU, or anything.
  void draw_room() {
    TrainOptions o = options();
    const int layers = static_cast<int>(o.model.layers);
    if (o.recompute_to_fit)
      o.recompute = Recomputation::at_rung(static_cast<int>(between(0, 2 * layers)), layers);
    o.recompute_to_fit = false;
    o.staging = false;
    const Room need = needed(o);
    const auto times = [](int64_t bytes, double factor) {
      return static_cast<int64_t>(std::llround(static_cast<double>(bytes) * factor));
    };
    room_.device = gpu_ != nullptr && one_in(2) ? gpu_catalogue().named(gpu_).bytes - left_to_cuda()
                   : one_in(4)                  ? times(need.device, 0.2 + 2 * part())
                                                : times(need.device, 0.9 + 0.2 * part());
    if (need.host > 0 && one_in(2)) room_.host = times(need.host, 0.9 + 0.2 * part());
    tightness_ = static_cast<double>(need.device) / static_cast<double>(room_.device);
  }

  RandomRun run_;
  std::mt19937_64 random_;
  const char* gpu_ = nullptr;
  Keys keys_;
  Room room_;
  double tightness_ = 0;
};

// The keys that a change names: "devices: 8, num_nodes: 2 with strategy: zero3".
inline RandomVerdict::Keys keys_of(std::string change) {
  for (size_t at; (at = change.find(" with ")) != std::string::npos;) change.replace(at, 6, ", ");
  RandomVerdict::Keys keys;
  for (size_t begin = 0, end; begin < change.size(); begin = end + 2) {
    end = std::min(change.find(", ", begin), change.size());
    const std::string one = change.substr(begin, end - begin);
    const size_t colon = one.find(": ");
    keys[one.substr(0, colon)] = one.substr(colon + 2);
  }
  return keys;
}

}  // namespace capstan::test
