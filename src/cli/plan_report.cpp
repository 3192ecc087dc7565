#include "cli/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/parallel.h"
#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "cli/plan_machine.h"
#include "cli/plan_tables.h"
#include "cli/step_parts.h"
#include "plan/quick.h"
#include "report/summary.h"

namespace capstan::cli {
namespace {

std::string rank_line(const TrainOptions& options, const RankBytes& bytes) {
  if (options.ranks.size == 1) return "";
  const std::string least = format_bytes(bytes.least), most = format_bytes(bytes.most);
  return wrapped(fmt::format("each of {} needs {} ({}); the table is that of rank {}",
                             count(options.ranks.size, "rank"),
                             least == most ? most : fmt::format("{} to {}", least, most),
                             mesh_name(options), options.ranks.rank),
                 "  ");
}

// Of a pipeline, what the ranks of each stage need.
std::string class_lines(const std::vector<RankClass>& classes) {
  if (classes.size() < 2) return "";
  std::vector<std::string> all;
  for (const RankClass& c : classes)
    all.push_back(fmt::format("{} {}", c.name, format_bytes(c.bytes)));
  return wrapped(fmt::format("{}", fmt::join(all, ", ")), "    ");
}

ModelSpec spec_of(const TrainOptions& o) {
  return make_spec(o.model, o.decay, o.lora, o.quantize);
}

std::string optimizer_name(const OptimizerOptions& o) {
  return std::string(name_of(OptimizerClass{o.kind, o.paged}));
}

// Names the figures that the catalogue lacks and a time needs; empty if it has them all.
std::string lacking(const std::optional<GpuModel>& gpu, const TrainOptions& o) {
  if (!gpu) return "";
  std::vector<std::string> what;
  if (gpu->bytes_per_second <= 0) what.emplace_back("memory_bandwidth");
  if (!peak_of(gpu, o)) what.push_back(fmt::format("rate of {} products", type_of_products(o)));
  if (what.empty()) return "";
  return fmt::format("the catalogue has no {} of {}; ", fmt::join(what, " and no "), gpu->id);
}

std::string unknown_time_line(const TrainOptions& o, bool elsewhere,
                              const std::optional<GpuModel>& gpu) {
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
  return wrapped(fmt::format("the time of a step is unknown: {}{}", lacking(gpu, o), way), "  ");
}

// "1.10 s to 1.42 s".
std::string range_text(double seconds, const Uncertainty& range) {
  return fmt::format("{} to {}", about(range.low * seconds), about(range.high * seconds));
}

std::string pytorch_line(const Time& t) {
  if (!t.pytorch) return "";
  const PyTorchRatio& r = *t.pytorch;
  return wrapped(fmt::format("a PyTorch program ({}): {}, {} to {} times as long, as beside this "
                             "one on an H200",
                             r.programs,
                             range_text(t.run_seconds.value_or(t.step.seconds),
                                        {t.range.low * r.low, t.range.high * r.high, ""}),
                             r.low, r.high),
                 "    ");
}

std::string unsourced_line(const std::optional<GpuModel>& gpu) {
  if (!gpu || gpu->unsourced.empty()) return "";
  return wrapped(fmt::format("† general knowledge, not looked up in a source: {}",
                             fmt::join(gpu->unsourced, ", ")),
                 "  ");
}

std::string parts_line(const StepEstimate& step) {
  std::vector<std::string> all;
  for (const StepPart& part : parts_of(step))
    if (const double share = part.seconds / step.seconds; share >= 0.005)
      all.push_back(fmt::format("{} {:.0f}%", part.name, 100 * share));
  return wrapped(fmt::format("{}", fmt::join(all, " · ")), "    ");
}

std::string utilization_line(const Planned& p, const Answers& a) {
  if (!a.peak_flops || p.inputs || p.options.lora) return "";  // formulas know of neither
  const TrainOptions& o = a.fit.options;
  const Utilization u = utilization_of(a.time->step, o.model, static_cast<double>(o.limits.longest),
                                       o.ranks.size, *a.peak_flops);
  return wrapped(
      fmt::format("utilization (MFU) {:.1f}% of {:.4g}{} TFLOP/s counting 6N + 12Lhs FLOPs "
                  "a token, {:.1f}% counting 6(N − Vh) + 6Lhs",
                  100 * u.whole, u.peak_flops / 1e12, a.gpu->mark({key_of_peak(o)}),
                  100 * u.causal),
      "    ");
}

std::string mark_of_times(const Time& t, const std::optional<GpuModel>& gpu) {
  if (!gpu || !t.calibration.from_data_sheet) return "";
  return gpu->mark({"memory_bandwidth", "f32", "tf32", "narrow", "fp8", "power", "best_product",
                    "link", "ports"});
}

std::string time_lines(const Planned& p, const Answers& a) {
  if (!a.time) return unknown_time_line(p.options, p.elsewhere, a.gpu);
  const Time& t = *a.time;
  std::string s =
      wrapped(fmt::format("a step takes about {} ({} tokens/s), {} {}{} of {}",
                          about(t.step.seconds), three_digits(t.step.tokens_per_second()),
                          t.calibration.from_data_sheet ? "by the data sheet of"
                                                        : "from the calibration of",
                          t.calibration.name, mark_of_times(t, a.gpu), t.calibration.date),
              "  ");
  s += parts_line(t.step) + utilization_line(p, a);
  if (const std::string between = between_text(a.machines, a); !between.empty())
    s += wrapped(fmt::format("{}: {}", count(a.machines.count, "machine"), between), "    ");
  if (constexpr double kMuch = 0.2; t.step.exposed > kMuch)
    s += wrapped(fmt::format("{:.0f}% of it computation waits for communication: --search looks "
                             "for a layout with less",
                             100 * t.step.exposed),
                 "    ");
  if (t.record) {
    std::istringstream lines(history_line(*t.record));
    for (std::string line; std::getline(lines, line);) s += wrapped(line, "  ");
  }
  if (t.correction != 1)
    s += fmt::format("  times are {:.2f} times those of the calibration, by that record\n",
                     t.correction);
  else if (t.asked_to_correct && (!t.record || t.record->timed < kEnoughToCorrect))
    s += wrapped(fmt::format("--correct: nothing to correct times by: {} of this precision here "
                             "{} predicted by this calibration, and {} are needed",
                             count(t.record ? t.record->timed : 0, "run"),
                             t.record && t.record->timed == 1 ? "was" : "were", kEnoughToCorrect),
                 "  ");
  if (t.run_seconds)
    s += wrapped(fmt::format("the {} {} about {}, without validation and checkpoints",
                             count(*p.steps, "step"), *p.steps == 1 ? "takes" : "take",
                             about(*t.run_seconds)),
                 "  ");
  s += wrapped(
      fmt::format("{} {}, {}", t.run_seconds ? "from" : "a step takes from",
                  range_text(t.run_seconds.value_or(t.step.seconds), t.range), t.range.origin),
      "    ");
  return s + pytorch_line(t);
}

std::string cost_lines(const Answers& a) {
  if (!a.cost && a.gpu && a.time && a.time->run_seconds) {
    const Prices known = prices();
    if (!cheapest_instances(known, a.gpu->id, 1))
      return wrapped(fmt::format("what it costs is unknown: the prices have no {}; a file of your "
                                 "own may, which $CAPSTAN_PRICES names",
                                 a.gpu->id),
                     "  ");
    return wrapped(fmt::format("what it costs to rent is not said: instances are joined by {:.3g} "
                               "Gb/s each, and these machines by more; --network {:.3g} plans with "
                               "that",
                               known.between.gigabits,
                               known.between.bytes_per_second() / a.machines.devices / 1e9),
                   "  ");
  }
  if (!a.cost) return "";
  const RunCost& c = *a.cost;
  return wrapped(
      fmt::format("rented by the hour it costs about {}: {}{} at {}/h", format_dollars(c.dollars),
                  c.machines > 1 ? fmt::format("{} × ", c.machines) : "", c.of_machine.text(),
                  format_dollars(c.machines * c.of_machine.dollars_per_hour)),
      "  ");
}

std::string quick_line(const TrainOptions& o, int64_t planned) {
  const double quick = quick_memory(o).total();
  if (o.lora || o.ranks.size > 1) return "";  // the formula knows of neither
  return wrapped(
      fmt::format("the quick formula (weights, input, moments) says {}: {} {}", format_bytes(quick),
                  format_bytes(std::abs(static_cast<double>(planned) - quick)),
                  quick < static_cast<double>(planned) ? "too little" : "too much"),
      "  ");
}

// Which checkpoints a run keeps, if it may be too many.
std::string kept_text(const Planned& p, const Recipe& recipe, const Needs& n) {
  if (!n.keeps_all) return "";
  if (p.default_length)
    return fmt::format(
        "; each further checkpoint, one every {}, takes {} more, unless "
        "train.keep_last says how many are kept",
        count(*recipe.save_interval, "step"), format_bytes(n.checkpoint_bytes));
  if (n.disk_of_last == 0) return "";
  return fmt::format("; with --train.keep_last {} it needs {}", kUsuallyKept,
                     format_bytes(n.disk_of_last));
}

std::string length_line(const Planned& p, const Recipe& recipe) {
  if (!p.default_length || !p.steps || !recipe.max_tokens) return "";
  return wrapped(
      fmt::format("nothing says how long to train: {} are LitGPT's default of {:.3g} tokens, which "
                  "is for many GPUs; --train.max_tokens or --train.max_steps says how long",
                  count(*p.steps, "step"), static_cast<double>(*recipe.max_tokens)),
      "  ");
}

std::string host_line(const Needs& n) {
  if (n.cores == 0) return "";
  const std::string cushion =
      n.planned_host_bytes < n.host_bytes
          ? fmt::format("; the run takes {} of it, but as much as the GPUs have is usual",
                        format_bytes(n.planned_host_bytes))
          : "";
  return wrapped(fmt::format("each host: {} of memory or more, {} cores{}",
                             format_bytes(n.host_bytes), n.cores, cushion),
                 "  ");
}

// The program that such machines need.
std::string processor_line(const std::optional<GpuModel>& gpu) {
  if (!gpu) return "";
  if (gpu->arm)
    return wrapped(fmt::format("machines with {} have Arm processors: they take Capstan's package "
                               "for Arm (arm64)",
                               gpu->id),
                   "  ");
  constexpr std::pair kOldest(7, 0);
  if (gpu->capability < kOldest)
    return wrapped(fmt::format("Capstan does not run on {}: it needs compute capability {}.{} or "
                               "newer, and that has {}.{}",
                               gpu->id, kOldest.first, kOldest.second, gpu->capability.first,
                               gpu->capability.second),
                   "  ");
  return "";
}

// What people size machines for inference by.
std::string copies_line(const Needs& n, Device device) {
  if (device != Device::cuda) return "";
  const std::string copies =
      n.copies.on_each == 0   ? fmt::format("one copy takes {} GPUs", n.copies.gpus_for_one)
      : n.copies.on_each == 1 ? "one copy fits on each GPU"
                              : fmt::format("{} copies fit on each GPU", n.copies.on_each);
  return wrapped(fmt::format("to use it, 2 bytes a parameter are {:.3g} GB: {}, without caches",
                             static_cast<double>(n.copy_bytes) / 1e9, copies),
                 "  ");
}

std::string needs_lines(const Planned& p, const Recipe& recipe, const Answers& a) {
  const Needs& n = a.needs;
  const bool named = p.steps && !p.default_length;
  std::string s =
      fmt::format("  a training checkpoint takes {} on disk{}\n", format_bytes(n.checkpoint_bytes),
                  named ? "; the run has " + count(*p.steps, "step") : "");
  s += length_line(p, recipe);
  if (p.steps)
    s += wrapped(fmt::format("the run needs about {} of disk: {} for {}, the model{}{}, "
                             "and a fifth free{}",
                             format_bytes(n.disk_bytes), format_bytes(n.stored_bytes),
                             count(n.checkpoints + 1, "checkpoint"),
                             n.base_bytes > 0 ? ", that which is tuned" : "",
                             n.data_bytes > 0 ? ", data of " + format_bytes(n.data_bytes) : "",
                             kept_text(p, recipe, n)),
                 "  ");
  s += host_line(n) + processor_line(a.gpu) + copies_line(n, p.options.device);
  if (n.tokenizer_tokens > 0 && n.input_tokens > 0)
    s += wrapped(fmt::format("it reads {} tokens/s; the data were tokenized at {} here",
                             three_digits(n.input_tokens), three_digits(n.tokenizer_tokens)),
                 "  ");
  return s;
}

std::string command_lines(const Answers& a) {
  return a.command.empty() ? "" : fmt::format("\non such a machine:\n{}\n", a.command);
}

}  // namespace

void print_plan_text(const Planned& p, const Recipe& recipe, const Answers& a) {
  const TrainOptions& o = p.options;
  const ModelSpec spec = spec_of(o);
  const std::string adapters =
      o.lora
          ? fmt::format(
                " and {} in adapters{}", format_count(static_cast<double>(spec.trainable_count())),
                o.quantize == Quantize::none ? "" : fmt::format(", {}", name_of(o.quantize)))
          : "";
  const std::string first =
      fmt::format("{}: {} parameters{}, {}, activations {}, {}", visible(p.model),
                  format_count(static_cast<double>(make_spec(o.model).parameter_count())), adapters,
                  precision_name(o), name_of(a.fit.options.recompute), optimizer_name(o.optimizer));
  fmt::print("{}{}\n{}\n", wrapped(first, ""), wrapped(p.basis, "planned "),
             plan_table(a.fit.plan));
  std::vector<std::string> most;
  if (a.largest.micro_batch > 0)
    most.push_back(fmt::format("train.micro_batch_size {} at {}", a.largest.micro_batch,
                               count(o.limits.longest, "token")));
  if (a.largest.sequence > 0)
    most.push_back(fmt::format("train.max_seq_length {} at {}", a.largest.sequence,
                               count(o.limits.documents, "sample")));
  fmt::print("{}{}", rank_line(o, p.ranks), class_lines(a.classes));
  if (!most.empty())
    fmt::print("{}", wrapped(fmt::format("{}", fmt::join(most, ", or ")), "  largest that fits: "));
  const std::string advice = precision_note(o);
  fmt::print("{}{}{}{}{}{}\n{}{}{}{}{}", a.cuda_share, quick_line(o, a.fit.plan.device.total_bytes),
             needs_lines(p, recipe, a), a.fit.fits() ? time_lines(p, a) : "",
             unsourced_line(a.gpu) + cost_lines(a), advice.empty() ? "" : wrapped(advice, "  "),
             wrapped(a.fit.verdict(), ""), remedy_table(a), scaling_table(p, a), offer_table(a),
             command_lines(a));
}

}  // namespace capstan::cli
