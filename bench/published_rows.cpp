// Steps that others have published, planned here: the trainer's own plan and simulated step for the
// same model, batch and mesh, with the GPU and its links by data sheet. Prints the tables of
// docs/planner.md. Nothing is fitted to the published figures.
//
// usage: bench_published_rows

#include "published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "plan/alike.h"
#include "plan/data_sheet.h"
#include "plan/predict.h"
#include "plan/pytorch_ratio.h"
#include "plan/uncertainty.h"
#include "train/balance.h"

namespace capstan::bench {
namespace {

// Steps of a 7B model in compiled PyTorch on an H200 took 1.14, 1.15, 1.11 and 1.04 times as long
// as Capstan's (docs/performance.md).
constexpr double kPyTorch = (1.14 + 1.15 + 1.11 + 1.04) / 4;

TrainOptions options_of(const PublishedRow& row, const GpuModel& gpu) {
  Recipe r;
  r.strategy = row.strategy;
  r.precision = row.precision;
  r.tensor_parallel = row.tensor;
  r.tensor_parallel_overlap = row.overlap ? Overlap::on : Overlap::off;
  r.context_parallel = row.context;
  r.pipeline_parallel = row.stages;
  if (row.chunks > 1) r.pipeline_schedule = {PipelineChoice::interleaved, row.chunks};
  r.micro_batch_size = row.micro_batch;
  r.global_batch_size = row.batch;
  r.num_nodes = row.gpus / per_machine(row);
  TrainOptions o;
  o.device = Device::cuda;
  o.model = model_of(row);
  o.precision = row.precision;
  o.recompute = parse_recomputation(row.recompute);
  o.max_norm = 1;
  o.limits = {
      .tokens = row.micro_batch * row.length, .documents = row.micro_batch, .longest = row.length};
  Network network = data_sheet_network(gpu, per_machine(row));
  network.room = r.num_nodes > 1;
  set_ranks(o, r, {0, row.gpus}, network, static_cast<int>(r.num_nodes));
  return o;
}

int64_t most_bytes(TrainOptions o) {
  if (o.mesh.pipeline > 1) o.pipeline.cuts = cuts_of(o);
  int64_t most = 0;
  for (const int rank : ranks_that_differ(o)) {
    o.ranks.rank = rank;
    most = std::max(most, Trainer::plan(o).device.total_bytes);
  }
  return most;
}

struct Result {
  const PublishedRow* row;
  bool pytorch;
  int64_t bytes = 0;
  StepEstimate step = {};
  std::string mesh = {};
  double rate = 0, published = 0;  // tokens/s of each GPU
  double low = 1, high = 1;        // of the published time, as factors of the predicted one

  bool within() const {
    const double factor = rate / published;
    return low <= factor && factor <= high;
  }
  double difference() const { return 100 * (rate / published - 1); }
  // Of a program that needs as much longer than Capstan as PyTorch did.
  double difference_as_pytorch() const {
    return pytorch ? 100 * (rate / kPyTorch / published - 1) : difference();
  }
};

Result plan(const PublishedRow& row, bool pytorch) {
  const GpuModel gpu = gpu_of(row);
  const TrainOptions o = options_of(row, gpu);
  Result r{.row = &row, .pytorch = pytorch, .bytes = most_bytes(o), .mesh = mesh_name(o)};
  const Calibration sheet = data_sheet(gpu, row.gpus);
  r.step = estimate_largest(o, cost_model(sheet, o), o.pipeline.micro_batches);
  const Uncertainty range = uncertainty_of(sheet, row.gpus, row.gpus / per_machine(row));
  const PyTorchRatio ratio = pytorch ? pytorch_ratio(o) : PyTorchRatio();
  r.low = range.low * ratio.low;
  r.high = range.high * ratio.high;
  r.rate = static_cast<double>(row.batch * row.length) / row.gpus / r.step.seconds;
  r.published = published_rate(row);
  return r;
}

std::string in_percent(double value) {
  return fmt::format("{:.1f}%", value);
}

// "51.2% (41.7%)": predicted and published.
std::string utilization(const Result& r) {
  if (r.row->flops == Flops::none) return "";
  const double each = 100 * flops_per_token(*r.row) / peak_of(*r.row);
  return fmt::format("{} ({})", in_percent(each * r.rate), in_percent(each * r.published));
}

std::string layout(const Result& r) {
  const PublishedRow& row = *r.row;
  const std::string mesh = row.gpus == 1 && !row.strategy.offload ? "one GPU" : r.mesh;
  std::string text = fmt::format("{}, {}", mesh, name_of(row.precision));
  if (row.recompute != "none") text += fmt::format(", {}", row.recompute);
  return text + (row.note > 0 ? fmt::format(" ({})", row.note) : "");
}

void print(const Result& r) {
  const PublishedRow& row = *r.row;
  const std::string gib = row.gib > 0 ? fmt::format(" ({:.1f})", row.gib) : "";
  fmt::print("| {}, {} {} | {} × {}, {} | {} | {:.1f}{} | {} | {} | {:+.1f}% |{} {} | {} | {} |\n",
             row.model, row.gpus, row.gpu, row.micro_batch, row.length, row.batch, layout(r),
             static_cast<double>(r.bytes) / 0x1p30, gib, std::lround(r.rate),
             std::lround(r.published), r.difference(),
             r.pytorch ? fmt::format(" {:+.1f}% |", r.difference_as_pytorch()) : "", utilization(r),
             in_percent(100 * r.step.exposed), in_percent(100 * r.step.waiting));
  std::fflush(stdout);
}

std::vector<Result> plan_source(const PublishedSource& source) {
  fmt::print(
      "\n**{}**\n\n| model | micro-batch, batch | mesh | GiB | tok/s | published | difference |{} "
      "MFU "
      "| exposed | bubble |\n|---|---|---|---|---|---|---|{}---|---|---|\n",
      source.name, source.pytorch ? " less PyTorch's |" : "", source.pytorch ? "---|" : "");
  std::vector<Result> results;
  for (const PublishedRow& row : source.rows)
    print(results.emplace_back(plan(row, source.pytorch)));
  return results;
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  const size_t half = all.size() / 2;
  return all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
}

// "12.3%, 29.3%": the median and the largest size.
std::string sizes_of(std::span<const Result> results, double (Result::*difference)() const) {
  std::vector<double> sizes;
  for (const Result& r : results) sizes.push_back(std::abs((r.*difference)()));
  return fmt::format("{:.1f}% | {:.1f}%", median(sizes),
                     *std::max_element(sizes.begin(), sizes.end()));
}

void print_sizes(std::string_view name, std::span<const Result> results) {
  fmt::print("| {} | {} | {} | {} |\n", name, results.size(),
             sizes_of(results, &Result::difference),
             sizes_of(results, &Result::difference_as_pytorch));
}

void print_within(std::span<const Result> results) {
  for (const bool pytorch : {true, false}) {
    const auto of = [&](const Result& r) { return r.pytorch == pytorch; };
    fmt::print("\n{}: {} of {} within the range that a plan says\n",
               pytorch ? "PyTorch programs" : "others",
               std::count_if(results.begin(), results.end(),
                             [&](const Result& r) { return of(r) && r.within(); }),
               std::count_if(results.begin(), results.end(), of));
  }
}

void print_scaling(std::span<const Result> results) {
  const auto find = [&](std::string_view id) {
    return std::find_if(results.begin(), results.end(),
                        [&](const Result& r) { return r.row->id == id; });
  };
  fmt::print("\n| model | GPUs | predicted | published | points |\n|---|---|---|---|---|\n");
  std::vector<double> sizes;
  for (const Scaling& s : published_scaling()) {
    const auto from = find(s.from), to = find(s.to);
    const double kept = 100 * to->rate / from->rate, known = 100 * to->published / from->published;
    sizes.push_back(std::abs(kept - known));
    fmt::print("| {}, {}, {} | {} → {} | {:.1f}% | {:.1f}% | {:+.1f} |\n", to->row->model,
               to->row->gpu, layout(*to), from->row->gpus, to->row->gpus, kept, known,
               kept - known);
  }
  const auto within = std::count_if(sizes.begin(), sizes.end(), [](double x) { return x <= 3; });
  fmt::print("\nwithin 3 points: {} of {}; median {:.1f}\n", within, sizes.size(), median(sizes));
}

// One layer that ranks share, forward and backward: what a micro-batch more takes with two layers
// and with one.
double layer_seconds(PublishedRow row) {
  row.batch = 3 * row.micro_batch;
  const GpuModel gpu = gpu_of(row);
  TrainOptions o = options_of(row, gpu);
  const auto micro_batch = [&](int64_t layers) {
    o.model.layers = layers;
    const CostModel machine = cost_model(data_sheet(gpu, row.gpus), o);
    return estimate_largest(o, machine, 3).seconds - estimate_largest(o, machine, 2).seconds;
  };
  return micro_batch(2) - micro_batch(1);
}

void run() {
  std::vector<Result> all;
  std::vector<size_t> ends;
  for (const PublishedSource& source : published_sources()) {
    for (const Result& r : plan_source(source)) all.push_back(r);
    ends.push_back(all.size());
  }
  fmt::print(
      "\n| source | rows | median | worst | median, less PyTorch's | worst "
      "|\n|---|---|---|---|---|---|\n");
  const std::span<const Result> results(all);
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++])
    print_sizes(published_sources()[i].name, results.subspan(begin, ends[i] - begin));
  print_sizes("all", results);
  print_within(results);
  print_scaling(results);
  fmt::print("\none layer of 22B, forward and backward: {:.1f} ms\n",
             1e3 * layer_seconds(published_sources()[0].rows[0]));
}

}  // namespace
}  // namespace capstan::bench

int main() {
  try {
    capstan::bench::run();
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "bench_published_rows: {}\n", e.what());
    return static_cast<int>(e.fault());
  }
}
