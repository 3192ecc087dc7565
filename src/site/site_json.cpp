#include <nlohmann/json.hpp>

#include "site/provision.h"
#include "site/site_plan.h"

namespace capstan {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Link& l) {
  if (l.ports == 0) return nullptr;
  return {{"ports_per_server", l.ports},
          {"gigabits_per_second", l.speed.gigabits},
          {"bytes_per_second", l.speed.bytes_per_second()},
          {"name", l.speed.name}};
}

Json servers_json(const SitePlan& p) {
  return {{"count", p.servers},
          {"gpu", p.server.gpu},
          {"gpus_per_server", p.server.gpus},
          {"gpus", p.gpus()},
          {"watts_per_server", p.server.watts},
          {"watts_origin", p.server.origin},
          {"height_units", p.server.units},
          {"height_assumed", !p.server.units_known},
          {"host_ram_bytes", p.host.ram_bytes},
          {"host_cores", p.host.cores}};
}

Json circuit_json(const Circuit& c) {
  return {{"name", c.name},
          {"volts", c.volts},
          {"amperes", c.amperes},
          {"phases", c.phases},
          {"capacity_va", c.capacity_va()},
          {"plug", c.plug()}};
}

Json power_json(const SitePlan& p) {
  const Cord cord = cord_for(p.server.watts);
  Json others = Json::array();
  for (const OtherCircuit& o : p.other_circuits)
    others.push_back({{"circuit", circuit_json(o.circuit)},
                      {"racks", o.layout ? Json(o.layout->racks) : Json()},
                      {"pdus", o.layout ? Json(o.layout->pdus) : Json()}});
  return {{"circuit", circuit_json(p.question.rack.circuit)},
          {"derating", kDerating},
          {"redundancy", name_of(p.question.rack.redundancy)},
          {"servers_per_pdu", p.racks.servers_per_pdu},
          {"pdus_per_server", p.racks.pdus_per_server},
          {"pdus", p.racks.pdus},
          {"cord", cord.name},
          {"cord_watts", cord.watts},
          {"cords_per_server", p.racks.cords_per_server},
          {"load_watts", p.power.load_watts},
          {"cooling_watts", p.power.load_watts},
          {"cooling_tons", p.power.cooling_tons},
          {"heat_btu_per_hour", p.power.heat_btu_per_hour},
          {"pue", p.question.pue},
          {"facility_watts", p.power.facility_watts},
          {"energy_kwh_per_year", p.power.kwh_per_year},
          {"other_circuits", others}};
}

Json racks_json(const SitePlan& p) {
  const RackLayout& l = p.racks;
  return {{"count", l.racks},
          {"height_units", p.question.rack.units},
          {"servers_per_rack", l.servers_per_rack},
          {"pdus_per_rack", l.pdus_per_rack},
          {"watts_per_rack", static_cast<double>(l.servers_per_rack) * p.server.watts},
          {"limited_by", name_of(l.limit)},
          {"free_units", p.question.rack.units - l.servers_per_rack * p.server.units}};
}

Json fabric_json(const SitePlan& p) {
  if (p.servers == 1) return nullptr;
  const FatTree& t = p.fabric;
  Json director;
  if (const auto d = p.director())
    director = {{"name", d->name}, {"ports", d->ports}, {"spines", d->spines()}};
  return {{"link", json_of(p.fabric_link)},
          {"endpoints", t.endpoints},
          {"switch_ports", t.ports},
          {"oversubscription", t.oversubscription},
          {"two_levels_suffice", t.fits()},
          {"most_endpoints", t.most_endpoints},
          {"least_switch_ports", ports_for(t.endpoints, t.oversubscription)},
          {"leaves", t.leaves},
          {"spines", t.spines},
          {"leaf_ports_down", t.down},
          {"leaf_ports_up", t.up},
          {"cables_to_servers", t.endpoints},
          {"cables_to_spines", t.cables_up()},
          {"director_switch", director}};
}

Json storage_json(const Storage& s) {
  return {{"needed_bytes", s.bytes},
          {"needed_bytes_per_second", s.bytes_per_second},
          {"provision_bytes", s.bought_bytes},
          {"provision_bytes_per_second", s.bought_bytes_per_second},
          {"fill", kFill},
          {"tier", name_of(s.tier)},
          {"link", json_of(s.link)}};
}

Json sharing_json(const SitePlan& p) {
  Json shares = Json::array();
  for (const GpuShare& s : p.shares)
    shares.push_back(
        {{"person", s.person}, {"gpus", s.gpus}, {"cuda_visible_devices", s.visible_devices()}});
  return {{"shares", shares}, {"needs_scheduler", p.needs_scheduler()}};
}

}  // namespace

std::string site_json(const SitePlan& p) {
  const Json out = {{"servers", servers_json(p)},
                    {"power", power_json(p)},
                    {"racks", racks_json(p)},
                    {"fabric", fabric_json(p)},
                    {"storage", storage_json(p.storage)},
                    {"sharing", sharing_json(p)}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace capstan
