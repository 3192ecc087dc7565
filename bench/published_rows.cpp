// Steps that others have published, planned here: the trainer's own plan and simulated step for the
// same model, batch and mesh, with the GPU and its links by data sheet. Prints the table of
// docs/planner.md. Nothing in it is fitted to the published times.
//
// usage: bench_published_rows

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "plan/alike.h"
#include "plan/data_sheet.h"
#include "plan/predict.h"
#include "train/balance.h"

namespace capstan::bench {
namespace {

// Megatron-LM's models in arXiv 2205.05198, with sequence parallelism and selective recomputation.
struct Row {
  const char* name;
  int64_t hidden, heads, layers;
  int64_t micro_batch, batch;
  int stages, chunks;
  double seconds;      // published; 0: only `utilization` is,
  double utilization;  // the part of 312 TFLOP/s that the model's FLOPs are
};
constexpr int kTensor = 8;
constexpr int64_t kLength = 2048, kVocab = 51200;
constexpr Row kRows[] = {{"22B", 6144, 64, 48, 4, 4, 1, 1, 1.10, 0.415},
                         {"175B", 12288, 96, 96, 1, 64, 8, 3, 13.75, 0.514},
                         {"530B", 20480, 128, 105, 1, 280, 35, 3, 0, 0.560},
                         {"1T", 25600, 160, 128, 1, 512, 64, 1, 71.49, 0.563}};

int ranks_of(const Row& row) {
  return kTensor * row.stages;
}

// The paper's FLOPs of a step, without recomputation.
double model_flops(const Row& r) {
  const auto h = static_cast<double>(r.hidden), layers = static_cast<double>(r.layers);
  const auto s = static_cast<double>(kLength), v = static_cast<double>(kVocab);
  return 72 * static_cast<double>(r.batch) * layers * s * h * h *
         (1 + s / (6 * h) + v / (12 * h * layers));
}

double published_seconds(const Row& r) {
  return r.seconds > 0 ? r.seconds : model_flops(r) / (ranks_of(r) * 312e12 * r.utilization);
}

// GPT has two matrices of 4h in its MLP. Three of 8h/3, which a gated one has, are as many
// parameters and FLOPs; rounded up to a multiple of 64.
ModelConfig model_of(const Row& r) {
  ModelConfig c;
  c.vocab = kVocab;
  c.hidden = r.hidden;
  c.intermediate = (8 * r.hidden / 3 + 63) / 64 * 64;
  c.layers = r.layers;
  c.heads = c.kv_heads = r.heads;
  c.head_dim = r.hidden / r.heads;
  c.max_positions = kLength;
  c.tied = true;
  return c;
}

TrainOptions options_of(const Row& row, const GpuModel& gpu) {
  Recipe r;
  r.tensor_parallel = kTensor;
  r.pipeline_parallel = row.stages;
  if (row.chunks > 1) {
    r.pipeline_schedule.kind = PipelineChoice::interleaved;
    r.pipeline_schedule.chunks = row.chunks;
  }
  r.micro_batch_size = row.micro_batch;
  r.global_batch_size = row.batch;
  r.num_nodes = row.stages;
  TrainOptions o;
  o.device = Device::cuda;
  o.model = model_of(row);
  o.precision = Precision::bf16_mixed;
  o.recompute = Recompute::selective;
  o.max_norm = 1;
  o.limits = {
      .tokens = row.micro_batch * kLength, .documents = row.micro_batch, .longest = kLength};
  Network network = data_sheet_network(gpu, kTensor);
  network.room = row.stages > 1;
  set_ranks(o, r, {0, ranks_of(row)}, network, row.stages);
  return o;
}

int64_t most_bytes(TrainOptions o) {
  o.pipeline.cuts = cuts_of(o);
  int64_t most = 0;
  for (const int rank : ranks_that_differ(o)) {
    o.ranks.rank = rank;
    most = std::max(most, Trainer::plan(o).device.total_bytes);
  }
  return most;
}

void print(const Row& row, const GpuModel& gpu) {
  const auto start = std::chrono::steady_clock::now();
  const TrainOptions o = options_of(row, gpu);
  const int64_t bytes = most_bytes(o);
  const StepEstimate step =
      estimate_largest(o, cost_model(data_sheet(gpu), o), o.pipeline.micro_batches);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const double published = published_seconds(row);
  fmt::print(
      "| {}, {} A100, {}, batch {} | {:.1f} GiB | {:.2f} s | {:.1f}% | {:.1f}% | {:.1f}% | {:.2f} "
      "s{} | "
      "{:+.1f}% | {:.1f} s |\n",
      row.name, ranks_of(row), mesh_name(o), row.batch, static_cast<double>(bytes) / 0x1p30,
      step.seconds, 100 * model_flops(row) / (ranks_of(row) * 312e12 * step.seconds),
      100 * step.exposed, 100 * step.waiting, published, row.seconds > 0 ? "" : " ¹",
      100 * (step.seconds / published - 1), took.count());
}

}  // namespace
}  // namespace capstan::bench

int main() {
  using namespace capstan;
  const GpuModel gpu = gpu_catalogue().named("a100-80-sxm");
  fmt::print(
      "| model and mesh | memory | step | MFU | exposed communication | bubble | published | "
      "difference | planned in |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const bench::Row& row : bench::kRows) bench::print(row, gpu);
}
