#include "cli/bench_comm.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/shell_words.h"
#include "base/terminal.h"
#include "bench/comm_bench.h"
#include "cli/command_line.h"
#include "cli/launch.h"
#include "machine/name.h"
#include "plan/calibration.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

struct CommOptions {
  std::string accelerator = "auto", devices = "auto", out;
  bool quick = false, json = false;
};

// Runs of this recipe would have the same ranks.
Recipe recipe_of(const CommOptions& o) {
  Recipe r;
  r.accelerator = parse_named<Accelerator>("accelerator", o.accelerator);
  const auto devices = Devices::parse(o.devices);
  require(devices && devices->count >= 1 && devices->count <= kMostRanks, Fault::usage,
          "devices: expected 1 to {}, GPUs as [0, 1] or auto, found '{}'", kMostRanks, o.devices);
  r.devices = *devices;
  if (r.devices.automatic && !launched_ranks() && device_of(r.accelerator) == Device::cpu)
    r.devices = {.count = std::clamp<int64_t>(num_threads(), 2, kMostRanks)};
  return r;
}

nlohmann::ordered_json json_of(const std::map<int, Network>& networks) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [ranks, network] : networks)
    out[std::to_string(ranks)] = {{"seconds_per_message", network.seconds_per_message},
                                  {"bytes_per_second", network.bytes_per_second}};
  return out;
}

nlohmann::ordered_json json_of(const CommResult& result) {
  auto rows = nlohmann::ordered_json::array();
  for (const CommRow& row : result.rows)
    rows.push_back({{"op", row.op},
                    {"ranks", row.ranks},
                    {"bytes", row.bytes},
                    {"seconds", row.seconds},
                    {"sent_bytes_per_second", row.rate()},
                    {"ring_limit_seconds", ring_limit(row, result)}});
  nlohmann::ordered_json all = {{"rows", rows}, {"networks", json_of(result.networks)}};
  if (!result.networks_across.empty()) all["networks_across"] = json_of(result.networks_across);
  for (const auto& [precision, costs] : result.together)
    all["steps_together_seconds"][precision] = costs.seconds;
  return all;
}

// The calibration of what a rank computes with, to which the result will be added. Warns if there
// is none: before the measuring, like all that is refused.
std::optional<Calibration> calibration_in(const fs::path& file, const CommOptions& o,
                                          Device device) {
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) {
    const std::string threads =
        device == Device::cpu ? fmt::format("OMP_NUM_THREADS={} ", num_threads()) : "";
    std::string out;
    if (file.empty() || !o.out.empty())
      out = " --out " + (file.empty() ? "FILE" : in_shell(file.string()));
    log::warn(
        "{}: there is no calibration yet, so the result will not be kept; run '{}capstan bench{}' "
        "first",
        file.empty() ? "no cache folder" : file.string(), threads, out);
    return std::nullopt;
  }
  require_writable_file(file);
  Calibration c = read_calibration(file);
  require(c.device == device, Fault::usage,
          "{}: the calibration is for {} (accelerator {}), and ranks on accelerator {} are to be "
          "measured",
          file.string(), c.name, name_of(c.device), name_of(device));
  return c;
}

int measure(const CommOptions& o, const Recipe& recipe, const Communicator& group) {
  const log::Quiet quiet(group.rank() != 0);
  const Device device = device_of(recipe.accelerator);
  Arena arena(Arena::Heap{}, device);
  Queue q(device, arena);
  std::optional<Calibration> calibration;
  const fs::path file = o.out.empty() ? calibration_path(machine_name(device)) : fs::path(o.out);
  if (group.rank() == 0) calibration = calibration_in(file, o, device);
  const bool shows = group.rank() == 0 && can_redraw();
  const auto progress = [&](const std::string& what, int64_t number, int64_t of) {
    if (shows)
      log::draw_bar(fmt::format("{:>3}%  {}", 100 * number / std::max<int64_t>(1, of), what));
  };
  CommSizes sizes = comm_sizes(o.quick);
  // Only a calibration keeps what steps take.
  if (group.open_channel("calibration")->share(calibration ? "kept" : "").empty())
    sizes.steps.clear();
  const CommResult result = bench_comm(q, group, sizes, progress);
  if (group.rank() != 0) return 0;
  if (shows) log::clear_bar();
  if (o.json)
    print_json(json_of(result));
  else
    fmt::print("{}", comm_table(result, calibration ? calibration->precisions : PrecisionCosts()));
  if (!calibration) return 0;
  add_to(*calibration, result);
  write_calibration(file, *calibration);
  log::say("\n  added to {}; 'capstan plan' uses it", file.string());
  return 0;
}

}  // namespace

int bench_comm(const Arguments& arguments) {
  CommandLine line(
      "Measures what connects several ranks: all-reduce, all-gather, reduce-scatter and sends by "
      "size and number of ranks, beside the limit of a ring. Adds it to the calibration that "
      "'capstan bench' wrote; to that of a CPU also how long steps take while all ranks compute, "
      "which is measured in one to three minutes. Start it as a run: with --devices, or with "
      "mpirun.",
      "capstan bench comm");
  CommOptions o;
  add_accelerator(line, o.accelerator);
  line.option("--devices", o.devices,
              "ranks on this machine, or GPUs as [0, 1]; auto: all GPUs, or a rank on each core");
  line.option("--out", o.out, "calibration file to add to (default: that of the user's cache)");
  line.flag("--quick", o.quick, "a quarter of the time, but less precise");
  line.flag("--json", o.json, "print JSON");
  if (!line.parse(arguments)) return 0;
  const Recipe recipe = recipe_of(o);
  if (launched_ranks())
    return run_as_launched(recipe.timeout, [&](LaunchedRank& rank) {
      rank.start(recipe);
      return measure(o, recipe, rank.group());
    });
  require_no_copy("bench comm");
  return run_in_threads(place_ranks(recipe), recipe,
                        [&](Communicator group) { return measure(o, recipe, group); });
}

}  // namespace capstan::cli
