// One training step (forward, backward, AdamW) of a model of random weights on random tokens, timed
// like bench/torch_step.py does for PyTorch: three steps to warm up, then the median of seven.
//
// usage: bench_step [--steps N] [--kernels] [--turns] [--predict] CASE...
//
// --turns: after the warm-up, one step for each line that is read, whose milliseconds are printed
// at once; the end of the input ends it. So another program can take turns with this one.
// --steps: one to warm up, then N. --kernels: on a GPU, also one step whose kernels are recorded
// (kernel_times.h), and what each took, on stderr. --predict: first, by the calibration of this
// machine (`capstan bench`), the steps of all cases are predicted.
//
// A case is
// model:precision:micro_batch:seq:accumulation[:activations[:N]][:ways][:tf32|:stochastic]; the
// last word is matmul_precision high, or optimizer.rounding stochastic. `ways` are one or more of
// lora, lora-all, qlora and qlora-all, joined by "+": LoRA of rank 8 for queries and values, of
// rank 32 for every linear map of the blocks, and these beside a model in NF4; or of AdamW8bit,
// PagedAdamW and PagedAdamW8bit, which train the whole model. They take turns with AdamW on the
// whole model, step by step, so that what slows the machine down slows all of them down.
//
// Prints one JSON line per way to train, on a GPU with its mean clock and power where the card
// tells them; the time by op, and the memory by category, on stderr.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "base/parallel.h"
#include "base/units.h"
#include "kernel_times.h"
#include "ops/elementwise.h"
#include "plan/predict.h"
#include "report/summary.h"
#include "step_case.h"

namespace capstan::bench {
namespace {

// What would come from a model's files.
void fill_frozen(Queue& q, Parameters& params) {
  Arena heap(Arena::Heap{}, q.device());
  Queue own(q.device(), heap);
  for (int i = 0; i < params.count(); ++i) {
    const Param& p = params.spec().params[static_cast<size_t>(i)];
    if (p.trainable) continue;
    for (int part = 0; part < std::ssize(p.parts); ++part) {
      Shape shape = p.shape;
      shape[0] = p.parts[static_cast<size_t>(part)].rows;
      const Buffer x = heap.make(Category::data, DType::f32, shape, "weights");
      if (p.init == Init::ones)
        fill(own, x, 1);
      else
        fill_normal(own, x, 0.02f, {.seed = 1, .site = static_cast<uint32_t>(8 * i + part)});
      own.synchronize();
      params.store_frozen(q, i, part, x);
      q.synchronize();
    }
  }
}

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of all threads of this process: what others do on the machine does not add to it. Threads that
// wait for others do, so it is best with OMP_NUM_THREADS=1.
double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A model that is being trained in one of the ways.
class Contestant {
 public:
  Contestant(const Case& c, const Variant& v, const Dataset& data)
      : name_(v.name),
        batches_{.max_seq_length = c.seq, .vocab = c.model.vocab},
        options_(options_of(c, v, limits_of(data, c.micro_batch, batches_))),
        gpu_(options_.device),
        plan_(Trainer::plan(options_)),
        arena_(plan_.device, options_.device),
        host_(plan_.host, Arena::Pinned{}),
        q_(options_.device, arena_, host_),
        trainer_(q_, options_),
        micro_(data, c.micro_batch, batches_),
        ids_(static_cast<size_t>(data.size())) {
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<int64_t>(i);
    if (v.lora) {
      fill_frozen(q_, trainer_.params());
      trainer_.params().initialize_adapters(q_, 1);
    } else {
      trainer_.params().initialize(q_, 1);
    }
  }

  // A step like the others, on a GPU, and what its kernels took.
  std::string kernels(int64_t i) {
    forget_kernels();
    if (q_.device() == Device::cuda) step(i, false);
    return kernel_table();
  }

  // Its own step, with every op waited for: what the time by op comes from on a GPU.
  void profile(int64_t i) {
    if (q_.device() != Device::cuda) return;
    q_.reset_totals();
    q_.time_each_op(true);
    micro_.start(ids_);
    trainer_.step(micro_, i);
    q_.time_each_op(false);
  }

  void step(int64_t i, bool counts) {
    if (counts && times_.empty()) q_.reset_totals();
    const auto start = std::chrono::steady_clock::now();
    const double processor = processor_seconds();
    micro_.start(ids_);
    const auto ask = [&] {
      if (counts) gpu_.sample();
    };
    loss_ = trainer_.step(micro_, i, nullptr, ask).loss;
    if (!counts) return;
    times_.push_back(since(start));
    processor_.push_back(processor_seconds() - processor);
  }

  const std::string& name() const { return name_; }
  const std::vector<double>& times() const { return times_; }
  const std::vector<double>& processor() const { return processor_; }
  double loss() const { return loss_; }
  const RunPlan& plan() const { return plan_; }
  const Arena& arena() const { return arena_; }
  const Arena& host() const { return host_; }
  const Queue& queue() const { return q_; }
  std::optional<GpuUse> gpu() const { return gpu_.use(0); }

 private:
  std::string name_;
  BatchOptions batches_;
  TrainOptions options_;
  GpuMonitor gpu_;  // before the GPU is first used
  RunPlan plan_;
  Arena arena_, host_;
  Queue q_;
  Trainer trainer_;
  MicroBatches micro_;
  std::vector<int64_t> ids_;
  std::vector<double> times_, processor_;
  double loss_ = 0;
};

// How each step's time compares with that of the step beside it: median, least, most.
nlohmann::ordered_json ratios(const std::vector<double>& times, const std::vector<double>& others) {
  std::vector<double> all;
  for (size_t i = 0; i < times.size(); ++i) all.push_back(times[i] / others[i]);
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  return {median(all), *least, *most};
}

using Contestants = std::vector<std::unique_ptr<Contestant>>;

void print(const Case& c, const Contestant& one, const Contestant& full, double start_seconds) {
  const auto tokens = static_cast<double>(c.micro_batch * c.seq * c.accumulation);
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
  nlohmann::ordered_json line = {{"case", c.name},
                                 {"tok_s", tokens / median(one.times())},
                                 {"step_ms", 1e3 * median(one.times())},
                                 {"processor_ms", 1e3 * median(one.processor())},
                                 {"maxrss_gib", gib(peak_resident_bytes())},
                                 {"planned_gib", gib(one.plan().device.total_bytes)},
                                 {"planned_host_gib", gib(one.plan().host.total_bytes)},
                                 {"start_ms", 1e3 * start_seconds},
                                 {"threads", num_threads()},
                                 {"loss", one.loss()}};
  if (const auto gpu = one.gpu()) {
    if (gpu->mean_mhz) line["mhz"] = *gpu->mean_mhz;
    if (gpu->mean_watts) line["watts"] = *gpu->mean_watts;
  }
  if (&one != &full) {
    line["trains"] = one.name();
    line["time_of_full"] = ratios(one.times(), full.times());
    line["processor_of_full"] = ratios(one.processor(), full.processor());
  }
  fmt::print("{}\n", line.dump());
  fmt::print(stderr, "{}\n{}\n", one.name(), op_table(one.queue(), 14));
}

// Planned bytes of each by category, and what was allocated.
void print_memory(const Contestants& all) {
  const auto row = [&](std::string_view name, const auto& bytes_of) {
    fmt::print(stderr, "  {:<14}", name);
    for (const auto& one : all)
      fmt::print(stderr, "{:>14}", format_bytes(static_cast<double>(bytes_of(*one))));
    fmt::print(stderr, "\n");
  };
  fmt::print(stderr, "  {:<14}", "memory");
  for (const auto& one : all) fmt::print(stderr, "{:>14}", one->name());
  fmt::print(stderr, "\n");
  for (size_t category = 0; category < kCategories; ++category)
    row(name_of(static_cast<Category>(category)),
        [&](const Contestant& one) { return one.plan().device.highest[category]; });
  row("total", [](const Contestant& one) { return one.plan().device.total_bytes; });
  row("allocated", [](const Contestant& one) { return one.arena().allocated_bytes(); });
  row("on the host", [](const Contestant& one) { return one.host().allocated_bytes(); });
}

struct Settings {
  int64_t warm = 3, steps = 7;
  bool kernels = false, turns = false, predict = false;
};

void take_turns(const Contestant& first, const std::function<void()>& step) {
  fmt::print("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    step();
    fmt::print("{:.6f}\n", 1e3 * first.times().back());
    std::fflush(stdout);
  }
  require(!first.times().empty(), Fault::usage, "--turns: expected a line for each step");
}

void predict(const Case& c) {
  const BatchOptions batches{.max_seq_length = c.seq, .vocab = c.model.vocab};
  const Dataset data = random_samples(c);
  std::vector<int64_t> ids(static_cast<size_t>(data.size()));
  std::iota(ids.begin(), ids.end(), 0);
  for (const Variant& v : c.variants) {
    const TrainOptions options = options_of(c, v, limits_of(data, c.micro_batch, batches));
    const auto calibration = find_calibration(options.device);
    require(calibration.has_value(), Fault::usage,
            "--predict: this machine has no calibration; `capstan bench` makes one");
    MicroBatches micro(data, c.micro_batch, batches);
    const StepEstimate e = estimate_step(options, cost_model(*calibration, options), micro, ids);
    const nlohmann::ordered_json line = {
        {"case", c.name}, {"trains", v.name}, {"predicted_ms", 1e3 * e.seconds}};
    fmt::print("{}\n", line.dump());
  }
  std::fflush(stdout);
}

void run(const Case& c, const Settings& s) {
  const auto started = std::chrono::steady_clock::now();
  const Dataset data = random_samples(c);
  Contestants all;
  for (const Variant& v : c.variants) all.push_back(std::make_unique<Contestant>(c, v, data));
  const double start_seconds = since(started);
  int64_t i = 0;
  const auto step_all = [&](bool counts) {
    for (const auto& one : all) one->step(i, counts);
    ++i;
  };
  while (i < s.warm) step_all(false);
  if (s.turns)
    take_turns(*all.front(), [&] { step_all(true); });
  else
    while (i < s.warm + s.steps) step_all(true);
  if (s.kernels) {
    for (const auto& one : all)
      fmt::print(stderr, "{}: kernels of a step\n{}\n", one->name(), one->kernels(i));
    ++i;
  }
  for (const auto& one : all) one->profile(i);
  for (const auto& one : all) print(c, *one, *all.front(), start_seconds);
  if (all.size() > 1) print_memory(all);
}

}  // namespace
}  // namespace capstan::bench

int main(int argc, char** argv) {
  using namespace capstan::bench;
  try {
    Settings settings;
    std::vector<Case> cases;
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      if (word == "--steps" && i + 1 < argc) {
        settings.warm = 1;
        settings.steps = std::max(1, std::atoi(argv[++i]));
      } else if (word == "--kernels") {
        settings.kernels = true;
      } else if (word == "--turns") {
        settings.turns = true;
      } else if (word == "--predict") {
        settings.predict = true;
      } else {
        cases.push_back(parse(argv[i]));
      }
    }
    capstan::require(!cases.empty(), capstan::Fault::usage,
                     "no case: bench_step [--steps N] [--kernels] [--turns] [--predict] "
                     "CASE..., as tinyllama:bf16-true:8:512:4");
    if (settings.kernels) record_kernels();
    for (const Case& c : cases)
      if (settings.predict) predict(c);
    for (const Case& c : cases) run(c, settings);
    return 0;
  } catch (const capstan::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
