#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/units.h"
#include "bench/machine_bench.h"
#include "cli/bench_comm.h"
#include "cli/command_line.h"
#include "cli/outputs.h"
#include "comm/process_group.h"
#include "machine/name.h"
#include "plan/gpu_catalogue.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

// Redraws one progress line if stderr is a terminal.
void show_progress(std::string_view what, int64_t number, int64_t of) {
  if (!can_redraw()) return;
  const double share = static_cast<double>(number) / static_cast<double>(of);
  log::draw_bar(fmt::format("{:>3.0f}%  {}", 100 * share, what));
}

const char* name_of(BenchRow::Unit unit) {
  switch (unit) {
    case BenchRow::Unit::flops: return "flops_per_second";
    case BenchRow::Unit::bytes: return "bytes_per_second";
    case BenchRow::Unit::seconds: return "seconds";
  }
  return "?";
}

void print_bench_json(const BenchResult& result, const fs::path& file) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : result.rows) {
    nlohmann::ordered_json r = {
        {"what", row.what}, {"type", row.type}, {name_of(row.unit), row.value}};
    if (const auto share = share_of_peak(row, result)) r["of_peak"] = *share;
    rows.push_back(r);
  }
  nlohmann::ordered_json disturbed = nlohmann::ordered_json::array();
  for (const BenchResult::Disturbed& d : result.disturbed)
    disturbed.push_back({{"what", d.name}, {"processors_of_others", d.processors}});
  const nlohmann::ordered_json out = {
      {"file", file.string()},
      {"peak", known_peak(result.calibration.name) ? "maker" : "measured"},
      {"rows", rows},
      {"measurements", result.measurements},
      {"disturbed", disturbed},
      {"calibration", parse_ordered_json(calibration_json(result.calibration), "the calibration")}};
  cli::print_json(out);
}

// What other programs disturbed, however often it was measured.
void warn_of_others(const BenchResult& result) {
  if (result.disturbed.empty()) return;
  const auto most =
      std::max_element(result.disturbed.begin(), result.disturbed.end(),
                       [](const auto& a, const auto& b) { return a.processors < b.processors; });
  log::warn(
      "other programs had up to {:.1f} processors during {} of {}, even when they were repeated "
      "(most during '{}'): these times are too long, and so will be those of 'capstan plan'; "
      "measure again when the machine is idle",
      most->processors, result.disturbed.size(), count(result.measurements, "measurement"),
      most->name);
}

// Ratio of the measured time of known steps to the sum of their ops. Predictions are scaled by it.
void print_steps(const Calibration& c) {
  bool odd = false;
  const auto show = [&](const std::string& of, double seconds, double predicted) {
    const double ratio = seconds / predicted;
    odd = odd || ratio < 0.8 || ratio > 1.25;
    fmt::print("  steps in {} took {:.2f} times the sum of their ops\n", of, ratio);
  };
  for (const auto& [type, rates] : c.types)
    if (rates.step_seconds > 0) show(type, rates.step_seconds, rates.step_predicted);
  for (const auto& [precision, costs] : c.precisions)
    show(precision, costs.seconds, costs.predicted);
  if (odd)
    fmt::print(
        "  these ratios should be near 1: another program may have used the machine; measure again "
        "when it is idle\n");
}

}  // namespace

int bench(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "comm")
    return bench_comm(Arguments(arguments.begin() + 1, arguments.end()));
  if (launched_ranks().value_or(Ranks()).rank != 0) return 0;
  CommandLine line(
      "Measures this machine: matrix products, memory, attention, the other ops, and a training "
      "step. Saves the result as a calibration, from which 'capstan plan' predicts the time of a "
      "run. Takes about a minute on an idle CPU, less on a GPU, and a few on a CPU that is slow or "
      "that other programs use: what they disturb is measured again, and after two minutes only "
      "what is needed. 'capstan bench comm' measures what connects several ranks.",
      "capstan bench");
  std::string accelerator = "auto", out;
  bool quick = false, json = false;
  add_accelerator(line, accelerator);
  line.option("--out", out,
              "calibration file to write (default: in the user's cache, where plan looks for it)");
  line.flag("--quick", quick, "a quarter of the time, but less precise");
  line.flag("--json", json, "print JSON");
  if (!line.parse(arguments)) return 0;
  const Device device = parse_accelerator(accelerator);
  require_present(device);
  const fs::path file = out.empty() ? calibration_path(machine_name(device)) : fs::path(out);
  require(!file.empty(), Fault::usage,
          "bench: neither CAPSTAN_CACHE nor HOME is set; name the output file with --out FILE");
  require_output("--out", file, kCalibrationFile);
  gpu_catalogue();  // what is wrong with the user's own is told before the measuring, not after
  const BenchResult result = bench_machine(device, bench_sizes(device, quick), show_progress);
  log::clear_bar();
  warn_of_others(result);
  write_calibration(file, result.calibration);
  if (json) {
    print_bench_json(result, file);
    return 0;
  }
  fmt::print("{}", bench_table(result));
  print_steps(result.calibration);
  fmt::print("\n  calibration written to {}; 'capstan plan' uses it{}\n", file.string(),
             out.empty() ? "" : " with --calibration");
  return 0;
}

}  // namespace capstan::cli
