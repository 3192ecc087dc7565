#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/log.h"
#include "bench/machine_bench.h"
#include "cli/command_line.h"
#include "machine/name.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

// A line that is redrawn where somebody watches.
void show_progress(std::string_view what, int64_t number, int64_t of) {
  if (isatty(STDERR_FILENO) == 0) return;
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

void print_json(const BenchResult& result, const fs::path& file) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : result.rows) {
    nlohmann::ordered_json r = {
        {"what", row.what}, {"type", row.type}, {name_of(row.unit), row.value}};
    if (const auto share = share_of_peak(row, result)) r["of_peak"] = *share;
    rows.push_back(r);
  }
  const nlohmann::ordered_json out = {
      {"file", file.string()},
      {"peak", known_peak(result.calibration.name) ? "maker" : "measured"},
      {"rows", rows},
      {"calibration", nlohmann::ordered_json::parse(calibration_json(result.calibration))}};
  cli::print_json(out);
}

// How the known steps compare with the sum of their ops: what predictions are corrected by.
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
        "  these should be near 1: something else may have used the machine meanwhile; measure "
        "again when it is quiet\n");
}

}  // namespace

int bench(const Arguments& arguments) {
  CommandLine line(
      "Measures this machine: matrix products, memory, attention, the ops between, and a training "
      "step. What it finds is kept as a calibration, with which 'capstan plan' predicts the time "
      "of a run. Takes up to a minute.",
      "capstan bench");
  std::string accelerator = "auto", out;
  bool quick = false, json = false;
  add_accelerator(line, accelerator);
  line.option("--out", out,
              "the calibration's file; else one of the user's cache, where plan looks for it");
  line.flag("--quick", quick, "a quarter of the time, and less exact");
  line.flag("--json", json, "print JSON");
  if (!line.parse(arguments)) return 0;
  const Device device = parse_accelerator(accelerator);
  require_present(device);
  const fs::path file = out.empty() ? calibration_path(machine_name(device)) : fs::path(out);
  require(!file.empty(), Fault::usage,
          "bench: neither CAPSTAN_CACHE nor HOME is set; say where to write, as --out FILE");
  require_writable(file.has_parent_path() ? file.parent_path() : fs::path("."));
  const BenchResult result = bench_machine(device, bench_sizes(device, quick), show_progress);
  log::clear_bar();
  write_calibration(file, result.calibration);
  if (json) {
    print_json(result, file);
    return 0;
  }
  fmt::print("{}", bench_table(result));
  print_steps(result.calibration);
  fmt::print("\n  the calibration is {}; 'capstan plan' uses it{}\n", file.string(),
             out.empty() ? "" : " with --calibration");
  return 0;
}

}  // namespace capstan::cli
