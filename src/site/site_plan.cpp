#include "site/site_plan.h"

#include <algorithm>

#include "base/error.h"
#include "site/provision.h"

namespace capstan {
namespace {

constexpr double kBtuPerHourPerWatt = 3.412142;
constexpr double kWattsPerTon = 3516.853;  // of refrigeration: 12,000 BTU/h
constexpr double kHoursPerYear = 8760;

int64_t servers_of(const SiteQuestion& q) {
  require(q.gpus == 0 || q.servers == 0, Fault::usage,
          "gpus: --gpus {} and --servers {} both say how many there are; give one of them", q.gpus,
          q.servers);
  if (q.gpus > 0) return parts_for(q.gpus, q.gpus_per_server);
  return std::max<int64_t>(1, q.servers);
}

GpuServer server_of(const SiteQuestion& q) {
  GpuServer s = server_with(q.gpu, q.gpus_per_server);
  if (q.server_watts > 0) {
    s.watts = q.server_watts;
    s.origin = "as given";
  }
  if (q.server_units > 0) {
    s.units = q.server_units;
    s.units_known = true;
  }
  return s;
}

void plan_fabric(SitePlan& p) {
  const SiteQuestion& q = p.question;
  const int64_t ports = q.fabric_ports > 0 ? q.fabric_ports : p.server.gpus;
  p.fabric_link = q.node_bytes_per_second > 0 ? link_with_ports(q.node_bytes_per_second, ports)
                                              : Link{speed_of(p.server.port_gigabits), ports};
  const int64_t switch_ports =
      q.switch_ports > 0 ? q.switch_ports : p.fabric_link.speed.switch_ports;
  p.fabric = fat_tree(p.servers * ports, switch_ports, q.oversubscription);
}

// What is given for a network between servers would be ignored if there is one.
void refuse_fabric_of_one(const SiteQuestion& q) {
  const bool given = q.node_bytes_per_second > 0 || q.fabric_ports > 0 || q.switch_ports > 0 ||
                     q.oversubscription != 1;
  require(!given, Fault::usage,
          "servers: one server has no network to others; leave out --node_gb_per_s, "
          "--fabric_ports, --switch_ports and --oversubscription, or give more --servers");
}

}  // namespace

PowerNeeds power_needs(double load_watts, double pue) {
  return {.load_watts = load_watts,
          .heat_btu_per_hour = load_watts * kBtuPerHourPerWatt,
          .cooling_tons = load_watts / kWattsPerTon,
          .facility_watts = load_watts * pue,
          .kwh_per_year = load_watts * pue / 1e3 * kHoursPerYear};
}

std::optional<Director> SitePlan::director() const {
  const bool enough = fabric.endpoints > 0 && fabric.endpoints <= kDirector.ports;
  if (!enough || fabric_link.speed.gigabits != kDirector.gigabits) return std::nullopt;
  return kDirector;
}

SitePlan plan_site(const SiteQuestion& q) {
  SitePlan p;
  p.question = q;
  p.servers = servers_of(q);
  p.server = server_of(q);
  p.host = host_needs(q.gpu, p.server.gpus, q.workers);
  p.racks = require_layout(p.server, p.servers, q.rack);
  for (const Circuit& circuit : known_circuits()) {
    if (circuit.capacity_va() == q.rack.circuit.capacity_va()) continue;
    RackKind other = q.rack;
    other.circuit = circuit;
    p.other_circuits.push_back({circuit, lay_out(p.server, p.servers, other)});
  }
  p.power = power_needs(static_cast<double>(p.servers) * p.server.watts + q.other_watts, q.pue);
  if (p.servers > 1) {
    plan_fabric(p);
  } else {
    refuse_fabric_of_one(q);
    p.fabric_link.ports = 0;
  }
  p.storage = storage_for(q.storage_bytes, q.storage_bytes_per_second, p.servers);
  if (q.people) p.shares = parse_shares(*q.people, p.server.gpus);
  return p;
}

}  // namespace capstan
