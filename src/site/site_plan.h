#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "site/network.h"
#include "site/racks.h"
#include "site/server.h"
#include "site/sharing.h"
#include "site/storage.h"

namespace capstan {

struct SiteQuestion {
  SiteGpu gpu = {};
  int64_t gpus = 0, servers = 0;  // at most one of them; 0: not given. Neither: one server
  int64_t gpus_per_server = 8;
  double server_watts = 0;   // 0: by server_with
  int64_t server_units = 0;  // 0: by server_with
  int64_t workers = 4;       // that load data, for each GPU
  RackKind rack;
  double other_watts = 0;  // of switches, storage and whatever else the room holds
  double pue = 1.5;        // power of the facility / power of what it is for

  double node_bytes_per_second = 0;  // of each server to others; 0: what is usual for its GPUs
  int64_t fabric_ports = 0;          // of each server; 0: one for each GPU
  int64_t switch_ports = 0;          // 0: those of the usual switch
  double oversubscription = 1;

  double storage_bytes = 2e12, storage_bytes_per_second = 1e9;  // of all servers together
  std::optional<std::string> people;                            // by parse_shares
};

// At full load.
struct PowerNeeds {
  double load_watts = 0;  // all of which becomes heat
  double heat_btu_per_hour = 0, cooling_tons = 0;
  double facility_watts = 0;  // with cooling and losses
  double kwh_per_year = 0;    // of the facility
};
PowerNeeds power_needs(double load_watts, double pue);

// The same racks with another circuit; no layout: not even one server goes into one.
struct OtherCircuit {
  Circuit circuit;
  std::optional<RackLayout> layout;
};

struct SitePlan {
  SiteQuestion question;
  GpuServer server;
  int64_t servers = 1;
  HostNeeds host;
  RackLayout racks;
  std::vector<OtherCircuit> other_circuits;
  PowerNeeds power;
  Link fabric_link;  // 0 ports if there is one server
  FatTree fabric;    // of no endpoints if there is one server
  Storage storage;
  std::vector<GpuShare> shares;  // of one server

  int64_t gpus() const { return servers * server.gpus; }
  // A chassis that replaces the fabric's switches, if one of its speed has enough ports.
  std::optional<Director> director() const;
  // Several servers are not divided by hand.
  bool needs_scheduler() const { return servers > 1; }
};

// From GPUs or servers to what their site needs. Throws Fault::usage for what contradicts itself.
SitePlan plan_site(const SiteQuestion& question);

// For people, in 80 columns, and for programs.
std::string site_text(const SitePlan& plan);
std::string site_json(const SitePlan& plan);

}  // namespace capstan
