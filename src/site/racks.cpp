#include "site/racks.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "site/provision.h"

namespace capstan {
namespace {

// Of so many PDUs of a rack, those that the load may fill.
int64_t carrying(int64_t pdus, Redundancy r) {
  if (r == Redundancy::none) return pdus;
  return r == Redundancy::one_more ? pdus - 1 : pdus / 2;
}
// How many a rack has if so many carry the load.
int64_t with_spares(int64_t carrying, Redundancy r) {
  if (r == Redundancy::none) return carrying;
  return r == Redundancy::one_more ? carrying + 1 : 2 * carrying;
}

int64_t pdus_for(int64_t servers, const RackLayout& l, Redundancy r) {
  if (servers == 0) return 0;
  const int64_t needed =
      l.servers_per_pdu > 0 ? parts_for(servers, l.servers_per_pdu) : servers * l.pdus_per_server;
  return with_spares(needed, r);
}

int64_t by_power(const RackLayout& l, const RackKind& rack) {
  const int64_t pdus = carrying(rack.most_pdus, rack.redundancy);
  return l.servers_per_pdu > 0 ? pdus * l.servers_per_pdu : pdus / l.pdus_per_server;
}

}  // namespace

std::optional<RackLayout> lay_out(const GpuServer& server, int64_t servers, const RackKind& rack) {
  RackLayout l;
  const double va = rack.circuit.capacity_va();
  l.servers_per_pdu = whole_in(va, server.watts);
  l.pdus_per_server = std::max<int64_t>(1, parts_for(server.watts, va));
  l.servers_per_rack = by_power(l, rack);
  const auto at_most = [&](int64_t n, RackLimit limit) {
    if (n >= l.servers_per_rack) return;
    l.servers_per_rack = n;
    l.limit = limit;
  };
  at_most(rack.units / server.units, RackLimit::height);
  if (rack.most_watts > 0) at_most(whole_in(rack.most_watts, server.watts), RackLimit::room);
  if (l.servers_per_rack < 1) return std::nullopt;
  l.racks = parts_for(servers, l.servers_per_rack);
  l.pdus_per_rack = pdus_for(l.servers_per_rack, l, rack.redundancy);
  l.pdus = servers / l.servers_per_rack * l.pdus_per_rack +
           pdus_for(servers % l.servers_per_rack, l, rack.redundancy);
  l.cords_per_server =
      with_spares(parts_for(server.watts, cord_for(server.watts).watts), rack.redundancy);
  return l;
}

RackLayout require_layout(const GpuServer& server, int64_t servers, const RackKind& rack) {
  if (const auto layout = lay_out(server, servers, rack)) return *layout;
  const double kw = server.watts / 1e3;
  const auto redundancy = name_of(rack.redundancy);
  const int64_t carriers = carrying(rack.most_pdus, rack.redundancy);
  require(carriers > 0, Fault::usage,
          "pdus_per_rack: redundancy {} needs at least 2 PDUs in a rack, found {}; give "
          "--pdus_per_rack 2, or --redundancy none",
          redundancy, rack.most_pdus);
  require(server.units <= rack.units, Fault::usage,
          "rack_units: a server is {}U high, but a rack has {}U; give --rack_units {} or more, or "
          "the server's height (--server_units)",
          server.units, rack.units, server.units);
  require(rack.most_watts <= 0 || server.watts <= rack.most_watts, Fault::usage,
          "rack_kw: a server takes {:.1f} kW, but a rack may take {:.1f} kW; give --rack_kw {:.1f} "
          "or more, or the server's power (--server_watts)",
          kw, rack.most_watts / 1e3, std::ceil(kw * 10) / 10);
  const int64_t needed = parts_for(server.watts, rack.circuit.capacity_va());
  fail(Fault::usage,
       "circuit: a server of {:.1f} kW needs {} of {:.2f} kVA, but with redundancy {} only {} of "
       "the {} in a rack may carry load; choose a circuit that carries more (--circuit 415x60), or "
       "--pdus_per_rack {}",
       kw, count(needed, "PDU"), rack.circuit.capacity_va() / 1e3, redundancy, carriers,
       rack.most_pdus, with_spares(needed, rack.redundancy));
}

}  // namespace capstan
