#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "site/provision.h"
#include "site/site_plan.h"

namespace capstan {
namespace {

using Lines = fmt::memory_buffer;

// A row of a section: what it is in 14 columns, then what it says.
void row(Lines& out, std::string_view what, std::string_view text) {
  fmt::format_to(std::back_inserter(out), "{}", wrapped(text, fmt::format("  {:<14}", what)));
}
void heading(Lines& out, std::string_view name) {
  fmt::format_to(std::back_inserter(out), "\n{}\n", name);
}

std::string kw(double watts) {
  return watts < 1e6 ? fmt::format("{:.1f} kW", watts / 1e3)
                     : fmt::format("{:.4g} MW", watts / 1e6);
}
// "17,292.8": grouped, with one digit after the point.
std::string tenths(double value) {
  const int64_t n = std::llround(value * 10);
  return fmt::format("{}.{}", format_grouped(n / 10), n % 10);
}
std::string whole(double value) {
  return format_grouped(std::llround(value));
}
std::string terabytes(double bytes) {
  return fmt::format("{:.4g} TB", bytes / 1e12);
}
std::string rate(double bytes_per_second) {
  return fmt::format("{:.4g} GB/s", bytes_per_second / 1e9);
}

void add_servers(Lines& out, const SitePlan& p) {
  const GpuServer& s = p.server;
  fmt::format_to(std::back_inserter(out), "{} with {} each: {}\n", count(p.servers, "server"),
                 fmt::format("{} {}", s.gpus, visible(s.gpu)), count(p.gpus(), "GPU"));
  if (p.question.gpus > 0 && p.question.gpus < p.gpus())
    row(out, "spare",
        fmt::format("{} beyond the {} asked for", count(p.gpus() - p.question.gpus, "GPU"),
                    p.question.gpus));
  heading(out, "each server");
  row(out, "power", fmt::format("{} ({})", kw(s.watts), s.origin));
  row(out, "height",
      fmt::format("{}U{}", s.units,
                  s.units_known ? "" : " (assumed; --server_units says otherwise)"));
  row(out, "host RAM",
      fmt::format("{} or more: as much as its GPUs have", format_bytes(p.host.ram_bytes)));
  row(out, "host cores",
      fmt::format("{} or more: {} × ({} + 1) + 4", p.host.cores, count(s.gpus, "GPU"),
                  count(p.question.workers, "worker")));
}

std::string load_of_pdu(const SitePlan& p) {
  const RackLayout& l = p.racks;
  if (l.servers_per_pdu > 0) return fmt::format("carries {}", count(l.servers_per_pdu, "server"));
  return fmt::format("{} carry one server", count(l.pdus_per_server, "PDU"));
}

std::string spares(Redundancy r) {
  switch (r) {
    case Redundancy::none: return "none: a PDU that fails stops its servers";
    case Redundancy::one_more: return "n+1: any one PDU of a rack may fail";
    case Redundancy::two_feeds: return "2n: feeds A and B, of which either carries all load";
  }
  return "?";
}

void add_power(Lines& out, const SitePlan& p) {
  const Circuit& c = p.question.rack.circuit;
  const RackLayout& l = p.racks;
  heading(out, "power");
  row(out, "each PDU",
      fmt::format("{} = {} VA ({:.1f} kVA)", c.formula(), tenths(c.capacity_va()),
                  c.capacity_va() / 1e3));
  row(out, "", load_of_pdu(p));
  row(out, "its plug", c.plug());
  row(out, "redundancy", spares(p.question.rack.redundancy));
  row(out, "PDUs", fmt::format("{}, {} in a full rack", l.pdus, l.pdus_per_rack));
  const Cord cord = cord_for(p.server.watts);
  row(out, "cords",
      fmt::format("{} or more a server: {}, about {} each", l.cords_per_server, cord.name,
                  kw(cord.watts)));
}

void add_circuits(Lines& out, const SitePlan& p) {
  for (bool first = true; const OtherCircuit& other : p.other_circuits) {
    const std::string kva = fmt::format("{:.3g} kVA", other.circuit.capacity_va() / 1e3);
    row(out, first ? "or --circuit" : "",
        other.layout
            ? fmt::format("{:<7} {:>9}  {:>5}  {}", other.circuit.name, kva,
                          count(other.layout->pdus, "PDU"), count(other.layout->racks, "rack"))
            : fmt::format("{:<7} {:>9}  needs more --pdus_per_rack", other.circuit.name, kva));
    first = false;
  }
}

std::string limit_of(const SitePlan& p) {
  switch (p.racks.limit) {
    case RackLimit::power: return "what its PDUs carry allows no more";
    case RackLimit::height: return fmt::format("its {}U allow no more", p.question.rack.units);
    case RackLimit::room:
      return fmt::format("{} a rack allow no more", kw(p.question.rack.most_watts));
  }
  return "?";
}

void add_racks(Lines& out, const SitePlan& p) {
  const RackLayout& l = p.racks;
  heading(out, "racks");
  row(out, "racks", fmt::format("{} of {}U", l.racks, p.question.rack.units));
  row(out, "in each",
      fmt::format("{} ({}), {}", count(l.servers_per_rack, "server"),
                  kw(static_cast<double>(l.servers_per_rack) * p.server.watts), limit_of(p)));
  row(out, "left",
      fmt::format("{}U in a full rack, for switches",
                  p.question.rack.units - l.servers_per_rack * p.server.units));
}

void add_heat(Lines& out, const SitePlan& p) {
  const PowerNeeds& n = p.power;
  heading(out, "at full load");
  row(out, "load",
      p.question.other_watts > 0
          ? fmt::format("{}, of which {} other than servers", kw(n.load_watts),
                        kw(p.question.other_watts))
          : fmt::format("{}; --other_kw adds switches and storage", kw(n.load_watts)));
  row(out, "heat",
      fmt::format("{} BTU/h: {} of cooling ({:.1f} tons of refrigeration)",
                  whole(n.heat_btu_per_hour), kw(n.load_watts), n.cooling_tons));
  row(out, "facility",
      fmt::format("{}, with a PUE of {:.4g}", kw(n.facility_watts), p.question.pue));
  row(out, "energy", fmt::format("{} MWh a year", whole(n.kwh_per_year / 1e3)));
}

std::string tree_of(const FatTree& t) {
  if (!t.fits()) return "two levels do not suffice";
  if (t.spines == 0) return "1 switch, without a second level";
  return fmt::format("{} and {}",
                     t.leaves == 1 ? std::string("1 leaf") : fmt::format("{} leaves", t.leaves),
                     count(t.spines, "spine"));
}

void add_tree(Lines& out, const SitePlan& p) {
  const FatTree& t = p.fabric;
  const bool usual = p.question.switch_ports == 0;
  row(out, "switches", fmt::format("{} for {}", tree_of(t), count(t.endpoints, "endpoint")));
  row(out, "",
      fmt::format("{} ports each{}", t.ports,
                  usual ? fmt::format(", as {}", p.fabric_link.speed.switch_name) : ""));
  if (!t.fits()) {
    row(out, "",
        fmt::format("two levels connect at most {}; take one of these:",
                    format_grouped(t.most_endpoints)));
    row(out, "",
        fmt::format("- switches with {} ports or more (--switch_ports)",
                    ports_for(t.endpoints, t.oversubscription)));
    row(out, "",
        fmt::format("- a third level of switches, for at most {} endpoints",
                    format_grouped(most_of_three_levels(t.ports))));
    row(out, "", "- fewer ports of a server (--fabric_ports)");
    return;
  }
  if (t.spines > 0) {
    row(out, "",
        t.down == t.up ? std::string("non-blocking")
                       : fmt::format("oversubscribed: {} ports of a leaf to servers, {} to spines",
                                     t.down, t.up));
    row(out, "",
        fmt::format("two levels of them connect up to {}", format_grouped(t.most_endpoints)));
  }
  row(out, "cables",
      fmt::format("{} to servers, {} between leaves and spines", format_grouped(t.endpoints),
                  format_grouped(t.cables_up())));
  if (const auto d = p.director())
    row(out, "or",
        fmt::format("one director switch {}: {} ports, {} spines of {} ports", d->name, d->ports,
                    d->spines(), d->ports_per_spine));
}

void add_network(Lines& out, const SitePlan& p) {
  heading(out, "network");
  if (p.servers == 1) {
    row(out, "servers", "one: its GPUs are connected inside it");
  } else {
    const Link& l = p.fabric_link;
    const double need = p.question.node_bytes_per_second;
    row(out, "training",
        fmt::format("{} of {} ({}) a server, {}", count(l.ports, "port"), l.speed.name,
                    rate(l.speed.bytes_per_second()),
                    need > 0 ? fmt::format("for {}", rate(need)) : "usual for such GPUs"));
    add_tree(out, p);
  }
  if (p.storage.link.ports > 0)
    row(out, "storage",
        fmt::format("{} of {} ({}) a server", count(p.storage.link.ports, "port"),
                    p.storage.link.speed.name, rate(p.storage.link.speed.bytes_per_second())));
  row(out, "management", "1 port of 1 GbE (0.125 GB/s) a server");
}

std::string tier_of(const Storage& s) {
  switch (s.tier) {
    case StorageTier::local: return "local NVMe drives, in the server";
    case StorageTier::nfs:
      return fmt::format("NFS: one file server on {}",
                         speed_of(std::max(10.0, s.bought_bytes_per_second * 8 / 1e9)).name);
    case StorageTier::parallel:
      return "a parallel file system (Lustre, BeeGFS, GPFS): beyond one NFS server";
  }
  return "?";
}

void add_storage(Lines& out, const SitePlan& p) {
  const Storage& s = p.storage;
  heading(out, "storage");
  row(out, "need",
      fmt::format("{} and {} of all servers", terabytes(s.bytes), rate(s.bytes_per_second)));
  row(out, "provision",
      fmt::format("{} and {}, so that it is {:.0f}% full", terabytes(s.bought_bytes),
                  rate(s.bought_bytes_per_second), 100 * kFill));
  row(out, "where", tier_of(s));
  if (s.tier != StorageTier::local) row(out, "", "copy what each epoch reads to local NVMe drives");
}

void add_sharing(Lines& out, const SitePlan& p) {
  if (p.shares.empty() && !p.needs_scheduler()) return;
  heading(out, "sharing");
  int64_t taken = 0;
  for (const GpuShare& share : p.shares) {
    taken += std::ssize(share.gpus);
    const std::string first = taken == std::ssize(share.gpus) ? "each runs" : "";
    const std::string line = fmt::format("export CUDA_VISIBLE_DEVICES={}", share.visible_devices());
    if (columns_of(line + share.person) <= 60) {
      row(out, first, fmt::format("{}  # {}", line, share.person));
    } else {
      row(out, first, fmt::format("# {}", share.person));
      row(out, "", line);
    }
  }
  if (!p.shares.empty()) {
    row(out, "", "export CUDA_DEVICE_ORDER=PCI_BUS_ID  # all: as nvidia-smi counts");
    row(out, "free", count(p.server.gpus - taken, "GPU"));
  }
  row(out, "scheduler",
      p.needs_scheduler() ? "Slurm: several servers cannot be shared by hand"
                          : "none needed yet; take Slurm when people want more GPUs");
}

}  // namespace

std::string site_text(const SitePlan& p) {
  Lines out;
  add_servers(out, p);
  add_power(out, p);
  add_circuits(out, p);
  add_racks(out, p);
  add_heat(out, p);
  add_network(out, p);
  add_storage(out, p);
  add_sharing(out, p);
  return fmt::to_string(out);
}

}  // namespace capstan
