// The experiments of a fine-tuning lab, planned: the trainer's own plan and simulated step for
// each, on A100 of 80 GB by data sheet. Prints the table of docs/lab.md. Nothing in it is fitted to
// what the lab measured.
//
// usage: bench_lab

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "model/known_models.h"
#include "plan/alike.h"
#include "plan/data_sheet.h"
#include "plan/predict.h"
#include "recipe/recipe_input.h"
#include "train/setup.h"

namespace capstan::bench {
namespace {

// What the lab measured of it; zeros: nothing is known. Memory in bytes, from the GPU with the
// least to the one with the most: what PyTorch had allocated after a forward pass, which is not a
// peak. Seconds of 1,600 samples.
struct Measured {
  double least = 0, most = 0, seconds = 0;
  bool out_of_memory = false;
};
struct Experiment {
  const char* name;
  const char* model;
  const char* keys;  // besides those of kCommon, as KEY=VALUE
  Measured measured = {};
};
// Of all of them: what is said of data, length and saving.
constexpr const char* kCommon =
    "train.max_seq_length=512 train.epochs=1 train.save_interval=100 eval.interval=25";
constexpr double kGiB = 1 << 30, kSamples = 1600;
constexpr const char *k1B = "TinyLlama-1.1B", *k3B = "open_llama_3b", *k7B = "open_llama_7b",
                     *k13B = "open_llama_13b";

constexpr Experiment kFull[] = {
    {"1.1B, 32-true, 8 × 4", k1B,
     "precision=32-true train.micro_batch_size=8 train.global_batch_size=32"},
    {"1.1B, bf16-mixed, 8 × 4", k1B,
     "precision=bf16-mixed train.micro_batch_size=8 train.global_batch_size=32"},
    {"1.1B, bf16-true, 8 × 4", k1B,
     "precision=bf16-true train.micro_batch_size=8 train.global_batch_size=32"},
    {"1.1B, 32-true, 32 × 1",
     k1B,
     "precision=32-true train.micro_batch_size=32 train.global_batch_size=32",
     {.out_of_memory = true}},
    {"3B, 32-true, 16 × 1", k3B,
     "precision=32-true train.micro_batch_size=16 train.global_batch_size=16"},
    {"7B, 32-true, 16 × 1", k7B,
     "precision=32-true train.micro_batch_size=16 train.global_batch_size=16"},
    {"7B, bf16-mixed, 4 × 4", k7B,
     "precision=bf16-mixed train.micro_batch_size=4 train.global_batch_size=16"},
    {"7B, bf16-true, 4 × 1",
     k7B,
     "precision=bf16-true train.micro_batch_size=4 train.global_batch_size=4",
     {61.97 * kGiB, 61.97 * kGiB, 212}},
    {"7B, bf16-true, 4 × 4",
     k7B,
     "precision=bf16-true train.micro_batch_size=4 train.global_batch_size=16",
     {61.99 * kGiB, 61.99 * kGiB, 165}},
    {"7B, bf16-true, 4 × 4, SGD", k7B,
     "precision=bf16-true train.micro_batch_size=4 train.global_batch_size=16 optimizer=SGD"},
    {"7B, bf16-true, DDP on 4 GPUs, 4 × 1",
     k7B,
     "precision=bf16-true train.micro_batch_size=4 train.global_batch_size=16 devices=4 "
     "strategy=ddp",
     {69.6 * kGiB, 74.0 * kGiB, 163}},
    {"7B, bf16-true, FSDP on 4 GPUs, 4 × 1",
     k7B,
     "precision=bf16-true train.micro_batch_size=4 train.global_batch_size=16 devices=4 "
     "strategy=fsdp",
     {32.0 * kGiB, 36.3 * kGiB, 173}},
    {"7B, bf16-true, FSDP on 4 GPUs, 8 × 1",
     k7B,
     "precision=bf16-true train.micro_batch_size=8 train.global_batch_size=32 devices=4 "
     "strategy=fsdp",
     {59.5 * kGiB, 63.0 * kGiB, 116}},
    {"13B, 32-true, 16 × 1", k13B,
     "precision=32-true train.micro_batch_size=16 train.global_batch_size=16"},
    {"13B, bf16-true, 1 × 1", k13B,
     "precision=bf16-true train.micro_batch_size=1 train.global_batch_size=1"},
    {"13B, bf16-true, 1 × 1, SGD", k13B,
     "precision=bf16-true train.micro_batch_size=1 train.global_batch_size=1 optimizer=SGD"},
    {"13B, bf16-mixed, ZeRO-3 on 4 GPUs with offload, 1 × 1", k13B,
     "precision=bf16-mixed train.micro_batch_size=1 train.global_batch_size=4 devices=4 "
     "strategy=deepspeed_stage_3_offload"}};
// All of rank 32 on every linear map, in bf16-true.
constexpr Experiment kAdapters[] = {{"1.1B, LoRA, 4 × 4", k1B, ""},
                                    {"3B, LoRA, 4 × 4", k3B, ""},
                                    {"7B, LoRA, 4 × 4", k7B, ""},
                                    {"7B, QLoRA (NF4), 4 × 4", k7B, "quantize=bnb.nf4"},
                                    {"13B, LoRA, 4 × 4", k13B, ""}};
constexpr const char* kLora =
    "precision=bf16-true lora_r=32 lora_key=true lora_projection=true lora_mlp=true lora_head=true "
    "train.micro_batch_size=4 train.global_batch_size=16";

void read(RecipeInput& input, const std::string& keys) {
  std::istringstream words(keys);
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    input.set(word.substr(0, at), word.substr(at + 1));
  }
}

Recipe recipe_of(const Experiment& e, Task task) {
  RecipeInput input(task, defaults_of(task));
  read(input, kCommon);
  if (task == Task::finetune_lora) read(input, kLora);
  read(input, e.keys);
  input.set("accelerator", "cuda");
  return input.finish();
}

// The rank that needs most becomes the one of the options.
int64_t most_bytes(TrainOptions& o) {
  int64_t most = 0;
  int chosen = 0;
  TrainOptions one = o;
  for (const int rank : ranks_that_differ(o)) {
    one.ranks.rank = rank;
    const int64_t bytes = Trainer::plan(one).device.total_bytes;
    if (bytes > most) chosen = rank;
    most = std::max(most, bytes);
  }
  o.ranks.rank = chosen;
  return most;
}

std::string measured_memory(const Measured& m) {
  if (m.out_of_memory) return "out of memory";
  if (m.most == 0) return "";
  if (m.least == m.most) return fmt::format("{:.1f} GiB", m.most / kGiB);
  return fmt::format("{:.1f} to {:.1f} GiB", m.least / kGiB, m.most / kGiB);
}

// Of ours from theirs, from the GPU with the most.
std::string difference(double ours, double theirs) {
  return theirs > 0 ? fmt::format("{:+.0f}%", 100 * (ours / theirs - 1)) : "";
}

TrainOptions options_of(const Experiment& e, const Recipe& recipe, Task task, const GpuModel& gpu) {
  TrainOptions o = worst_case_options(recipe, task, known_model(e.model).value());
  const auto gpus = static_cast<int>(recipe.devices.count);
  set_ranks(o, recipe, {0, gpus}, data_sheet_network(gpu, gpus));
  return o;
}

// The last four cells of a row.
std::string times(const TrainOptions& o, const Measured& measured, double samples_of_step,
                  const GpuModel& gpu) {
  const CostModel machine = cost_model(data_sheet(gpu, o.ranks.size), o);
  const double step = estimate_largest(o, machine, o.pipeline.micro_batches).seconds;
  const double run = step * kSamples / samples_of_step;
  const std::string theirs = measured.seconds > 0 ? fmt::format("{:.0f} s", measured.seconds) : "";
  return fmt::format("{:.2f} s | {:.0f} s | {} | {}", step, run, theirs,
                     difference(run, measured.seconds));
}

void print(const Experiment& e, Task task) {
  const GpuModel gpu = gpu_catalogue().named("a100-80-pcie");
  const Recipe recipe = recipe_of(e, task);
  TrainOptions o = options_of(e, recipe, task, gpu);
  const int64_t bytes = most_bytes(o);
  const bool fits = bytes <= gpu.bytes - left_to_cuda();
  const auto planned = static_cast<double>(bytes);
  fmt::print(
      "| {} | {:.1f} GiB | {} | {} | {} | {} |\n", e.name, planned / kGiB, fits ? "yes" : "no",
      measured_memory(e.measured), difference(planned, e.measured.most),
      fits ? times(o, e.measured, static_cast<double>(recipe.global_batch_size), gpu) : " | | | ");
}

}  // namespace
}  // namespace capstan::bench

int main() {
  using namespace capstan;
  fmt::print(
      "| experiment | planned | fits | measured | difference | step | 1,600 samples | measured | "
      "difference |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& e : bench::kFull) bench::print(e, Task::finetune_full);
  for (const auto& e : bench::kAdapters) bench::print(e, Task::finetune_lora);
}
