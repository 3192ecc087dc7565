#include "cli/plan_site.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "plan/gpu_catalogue.h"
#include "site/site_plan.h"

namespace capstan::cli {
namespace {

constexpr double kMost = 1e6;  // of whatever is counted or measured here

// The question as a user gives it: kW, GB/s, TB.
struct SiteOptions {
  std::string gpu = "h100-sxm", circuit = "208x60x3", redundancy = "2n";
  double rack_kw = 0, other_kw = 0, node_gb_per_s = 0;
  double storage_tb = 2, storage_gb_per_s = 1;
  bool json = false;
  SiteQuestion question;
};

void add_servers(CommandLine& line, SiteOptions& o) {
  SiteQuestion& q = o.question;
  const Range optional = {1, kMost, false};
  line.option("--gpu", o.gpu, "GPU of the catalogue");
  line.option("--servers", q.servers, "number of servers (default: 1)", optional);
  line.option("--gpus", q.gpus, "number of GPUs, instead of --servers", optional);
  line.option("--gpus_per_server", q.gpus_per_server, "GPUs of each server", {1, 64});
  line.option("--server_watts", q.server_watts,
              "W that each server takes at most (default: by its GPUs)", optional);
  line.option("--server_units", q.server_units,
              "height of each server in rack units (default: by its GPUs)", {1, 100, false});
  line.option("--workers", q.workers, "processes that load data, for each GPU", {0, 1000});
}

void add_power(CommandLine& line, SiteOptions& o) {
  RackKind& rack = o.question.rack;
  line.option("--circuit", o.circuit,
              "what feeds each PDU: VOLTSxAMPERESxPHASES, or l15-30, 208x60 or 415x60");
  line.choice("--redundancy", o.redundancy, names_of<Redundancy>(),
              "spare PDUs: none; n+1: one in each rack; 2n: two feeds that each carry all");
  line.option("--pdus_per_rack", rack.most_pdus, "PDUs that a rack may have, with spares",
              {1, 100});
  line.option("--rack_units", rack.units, "height of a rack", {1, 100});
  line.option("--rack_kw", o.rack_kw,
              "kW that the room allows in a rack (default: what its PDUs carry)",
              {0.1, kMost, false});
  line.option("--other_kw", o.other_kw, "kW of switches, storage and others", {0, kMost});
  line.option("--pue", o.question.pue, "power of the facility for each W of load", {1, 10});
}

void add_network(CommandLine& line, SiteOptions& o) {
  SiteQuestion& q = o.question;
  line.option("--node_gb_per_s", o.node_gb_per_s,
              "GB/s that each server sends to others (default: what is usual for its GPUs)",
              {1e-3, kMost, false});
  line.option("--fabric_ports", q.fabric_ports,
              "ports of each server to others (default: one for each GPU)", {1, 64, false});
  line.option("--switch_ports", q.switch_ports,
              "ports of a switch (default: those that are usual for the speed)", {2, 4096, false});
  line.option("--oversubscription", q.oversubscription,
              "ports of a leaf switch to servers, for each to a spine; 1: non-blocking", {1, 100});
  line.option("--storage_tb", o.storage_tb, "TB that all servers keep together", {1e-3, kMost});
  line.option("--storage_gb_per_s", o.storage_gb_per_s, "GB/s that they read and write together",
              {1e-3, kMost});
}

SiteQuestion question_of(const SiteOptions& o) {
  SiteQuestion q = o.question;
  const GpuModel gpu = gpu_catalogue().named(o.gpu);
  q.gpu = {gpu.id, gpu.watts, gpu.sold_bytes(), gpu.port_gigabits};
  if (gpu.per_machine > 0 && q.gpus_per_server > gpu.per_machine) {
    log::info("servers with {} have {}", gpu.id, count(gpu.per_machine, "GPU"));
    q.gpus_per_server = gpu.per_machine;
  }
  q.rack.circuit = parse_circuit(o.circuit);
  q.rack.redundancy = parse_named<Redundancy>("redundancy", o.redundancy);
  q.rack.most_watts = 1e3 * o.rack_kw;
  q.other_watts = 1e3 * o.other_kw;
  q.node_bytes_per_second = 1e9 * o.node_gb_per_s;
  q.storage_bytes = 1e12 * o.storage_tb;
  q.storage_bytes_per_second = 1e9 * o.storage_gb_per_s;
  return q;
}

}  // namespace

int plan_site(const Arguments& arguments) {
  CommandLine line(
      "Plans a site for GPUs: power, cooling, racks, network, storage, and who uses which GPU of a "
      "shared server. It is arithmetic on published figures, which docs/site.md lists.",
      "capstan plan site");
  SiteOptions o;
  add_servers(line, o);
  add_power(line, o);
  add_network(line, o);
  line.option("--people", o.question.people,
              "divide the GPUs of one server: names and numbers, such as ana:2,ben:4");
  line.flag("--json", o.json, "print JSON");
  if (!line.parse(arguments)) return 0;
  const SitePlan plan = capstan::plan_site(question_of(o));
  fmt::print("{}", o.json ? site_json(plan) + "\n" : site_text(plan));
  return 0;
}

}  // namespace capstan::cli
