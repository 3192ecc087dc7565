#include "cli/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "base/units.h"
#include "base/visible.h"
#include "checkpoint/training_checkpoint.h"
#include "cli/command_line.h"
#include "report/summary.h"

namespace capstan::cli {
namespace {

std::string rank_line(const TrainOptions& options, const RankBytes& bytes) {
  if (options.ranks.size == 1) return "";
  const std::string least = format_bytes(bytes.least), most = format_bytes(bytes.most);
  return fmt::format("  each of {} needs {} ({}); the table is that of rank {}\n",
                     count(options.ranks.size, "rank"),
                     least == most ? most : fmt::format("{} to {}", least, most),
                     mesh_name(options), options.ranks.rank);
}

ModelSpec spec_of(const TrainOptions& o) {
  return make_spec(o.model, o.decay, o.lora, o.quantize);
}

std::string optimizer_name(const OptimizerOptions& o) {
  return std::string(name_of(OptimizerClass{o.kind, o.paged}));
}

// Size of a training checkpoint.
int64_t disk_bytes(const TrainOptions& o) {
  Arena arena;
  Queue q(Device::sim, arena, {.device = o.device});
  TrainOptions alone = o;  // a checkpoint does not know the ranks
  alone.ranks = {};
  alone.mesh = {};
  alone.sharding = {.offload = o.sharding.offload};
  Trainer trainer(q, alone);
  return CheckpointSaver(q, trainer.params(), trainer.optimizer(), nullptr).bytes();
}

nlohmann::ordered_json memory_json(const MemoryPlan& plan, int64_t available) {
  auto categories = nlohmann::ordered_json::object();
  for (int i = 0; i < kCategories; ++i)
    if (const int64_t n = plan.at_peak[static_cast<size_t>(i)]; n > 0)
      categories[std::string(name_of(static_cast<Category>(i)))] = n;
  if (const int64_t lost = plan.total_bytes - plan.peak_bytes; lost > 0)
    categories["packing"] = lost;
  nlohmann::ordered_json out = {{"peak_bytes", plan.total_bytes}};
  if (available != Room().host) out["available_bytes"] = available;
  out["by_category"] = categories;
  return out;
}

nlohmann::ordered_json time_json(const Time& t) {
  nlohmann::ordered_json out = {{"step_seconds", t.step.seconds},
                                {"step_tokens", t.step.tokens},
                                {"tokens_per_second", t.step.tokens_per_second()}};
  if (t.step.waiting > 0) out["stages_wait"] = t.step.waiting;
  if (t.step.exposed > 0) out["exposed_communication"] = t.step.exposed;
  if (t.run_seconds) out["run_seconds"] = *t.run_seconds;
  out["calibration"] = {{"name", t.calibration.name}, {"date", t.calibration.date}};
  if (t.calibration.from_data_sheet) out["calibration"]["data_sheet"] = true;
  return out;
}

// "0.22 s": three digits, and minutes from 100 seconds.
std::string about(double seconds) {
  if (seconds >= 100) return format_duration(seconds);
  return seconds < 0.1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

// "74,000", "67.4": three digits are enough for an estimate.
std::string three_digits(double n) {
  if (n < 1000) return fmt::format("{:.3g}", n);
  std::string digits = fmt::format("{:.0f}", n);
  const double unit = std::pow(10, static_cast<double>(digits.size()) - 3);
  digits = fmt::format("{:.0f}", std::round(n / unit) * unit);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string unknown_time_line(const TrainOptions& o, bool elsewhere) {
  const Device device = o.device;
  if (device == Device::cpu && types_of(o.precision).compute == DType::f16)
    return "  the time of a step is unknown: f16 is not measured on a CPU\n";
  std::string way = "run 'capstan bench' to measure this machine";
  if (device == Device::cpu && cuda_present())
    way = "run 'capstan bench --accelerator cpu' to measure this machine";
  if (device == Device::cuda && (elsewhere || !cuda_present()))
    way = "run 'capstan bench --out FILE' there and pass --calibration FILE here";
  // Between processes sums need room: the ranks are on several machines.
  const std::string comm = o.network.room
                               ? fmt::format("mpirun -n {} … capstan bench comm", o.ranks.size)
                               : fmt::format("capstan bench comm --devices {}", o.ranks.size);
  if (o.ranks.size > 1 && device == Device::cpu)
    way = fmt::format(
        "run 'OMP_NUM_THREADS={} capstan bench' to measure what a rank has of this machine, and "
        "'{}' to measure what connects them",
        num_threads(), comm);
  if (o.ranks.size > 1 && device == Device::cuda)
    way = fmt::format(
        "run 'capstan bench' and '{}' there, both with --out FILE, and pass --calibration FILE "
        "here",
        comm);
  if (o.precision == Precision::fp8_mixed && (device == Device::cpu || cuda_present()) &&
      !multiplies_fp8(device))
    way = "FP8 products can only be measured on a device that supports them";
  return fmt::format("  the time of a step is unknown: {}\n", way);
}

std::string time_lines(const Planned& p, const std::optional<Time>& time) {
  if (!time) return unknown_time_line(p.options, p.elsewhere);
  std::string s = fmt::format(
      "  a step takes about {} ({} tokens/s), {} {} of {}\n", about(time->step.seconds),
      three_digits(time->step.tokens_per_second()),
      time->calibration.from_data_sheet ? "by the data sheet of" : "from the calibration of",
      time->calibration.name, time->calibration.date);
  if (time->step.exposed >= 0.005)
    s += fmt::format("  {:.0f}% of it is communication that nothing hides\n",
                     100 * time->step.exposed);
  if (time->step.waiting > 0)
    s += fmt::format("  the stages wait for each other {:.0f}% of the time\n",
                     100 * time->step.waiting);
  if (time->run_seconds)
    s += fmt::format("  the {} {} about {}, without validation and checkpoints\n",
                     count(*p.steps, "step"), *p.steps == 1 ? "takes" : "take",
                     about(*time->run_seconds));
  return s;
}

}  // namespace

void print_plan_json(const Planned& p, const Fit& fit, const Largest& largest,
                     const std::optional<Time>& time) {
  nlohmann::ordered_json memory = memory_json(fit.plan.device, fit.available.device);
  memory["peak_phase"] = fit.plan.device.peak_phase;
  memory["peak_buffer"] = fit.plan.device.peak_buffer;
  nlohmann::ordered_json out = {
      {"fits", fit.fits()},
      {"model",
       {{"name", p.model},
        {"parameters", make_spec(p.options.model).parameter_count()},
        {"trainable", spec_of(p.options).trainable_count()}}},
      {"memory", memory},
      {"activations", name_of(fit.options.recompute)},
      {"batch",
       {{"samples", p.options.limits.documents},
        {"tokens", p.options.limits.tokens},
        {"longest", p.options.limits.longest}}},
      {"largest",
       {{"micro_batch_size", largest.micro_batch}, {"max_seq_length", largest.sequence}}},
      {"checkpoint_bytes", disk_bytes(p.options)},
      {"fits_with", fit.changes},
      {"basis", p.basis}};
  if (p.options.device == Device::cuda)
    out["host_memory"] = memory_json(fit.plan.host, fit.available.host);
  if (p.steps) out["steps"] = *p.steps;
  if (p.options.ranks.size > 1)
    out["ranks"] = {{"count", p.options.ranks.size},
                    {"strategy", strategy_name(p.options.sharding)},
                    {"least_bytes", p.ranks.least},
                    {"most_bytes", p.ranks.most}};
  if (time) out["time"] = time_json(*time);
  cli::print_json(out);
}

void print_plan_text(const Planned& p, const Fit& fit, const Largest& largest,
                     const std::optional<Time>& time, const std::string& cuda_share) {
  const TrainOptions& o = p.options;
  const ModelSpec spec = spec_of(o);
  const std::string adapters =
      o.lora
          ? fmt::format(
                " and {} in adapters{}", format_count(static_cast<double>(spec.trainable_count())),
                o.quantize == Quantize::none ? "" : fmt::format(", {}", name_of(o.quantize)))
          : "";
  fmt::print("{}: {} parameters{}, {}, activations {}, {}\nplanned {}\n\n{}\n", visible(p.model),
             format_count(static_cast<double>(make_spec(o.model).parameter_count())), adapters,
             name_of(o.precision), name_of(fit.options.recompute), optimizer_name(o.optimizer),
             p.basis, plan_table(fit.plan));
  std::vector<std::string> most;
  if (largest.micro_batch > 0)
    most.push_back(fmt::format("train.micro_batch_size {} at {}", largest.micro_batch,
                               count(o.limits.longest, "token")));
  if (largest.sequence > 0)
    most.push_back(fmt::format("train.max_seq_length {} at {}", largest.sequence,
                               count(o.limits.documents, "sample")));
  fmt::print("{}", rank_line(o, p.ranks));
  if (!most.empty()) fmt::print("  largest that fits: {}\n", fmt::join(most, ", or "));
  const std::string advice = precision_note(o);
  fmt::print("{}  a training checkpoint takes {} on disk{}\n{}{}\n{}\n", cuda_share,
             format_bytes(disk_bytes(o)), p.steps ? "; the run has " + count(*p.steps, "step") : "",
             fit.fits() ? time_lines(p, time) : "",
             advice.empty() ? "" : fmt::format("  {}\n", advice), fit.verdict());
}

}  // namespace capstan::cli
