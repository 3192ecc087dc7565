#include "site/network.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/units.h"
#include "site/provision.h"

namespace capstan {
namespace {

// Ports of Ethernet and EDR switches: general knowledge.
constexpr LinkSpeed kSpeeds[] = {{"1 GbE", 1, "Ethernet", 48},
                                 {"10 GbE", 10, "Ethernet", 48},
                                 {"100 GbE or EDR", 100, "EDR", 36},
                                 {"200 Gb/s HDR", 200, "QM8700", 40},
                                 {"400 Gb/s NDR", 400, "QM9700", 64}};
const LinkSpeed& fastest() {
  return *std::rbegin(kSpeeds);
}

// Ports of a leaf to endpoints.
int64_t ports_down(int64_t ports, double oversubscription) {
  return whole_in(static_cast<double>(ports) * oversubscription, oversubscription + 1);
}

}  // namespace

LinkSpeed speed_of(double gigabits) {
  for (const LinkSpeed& s : kSpeeds)
    if (s.gigabits >= gigabits * (1 - 1e-9)) return s;
  return fastest();
}

Link link_for(double bytes_per_second, double least_gigabits) {
  const double needed = provisioned(bytes_per_second);
  const int64_t ports = std::max<int64_t>(1, parts_for(needed, fastest().bytes_per_second()));
  const double each = needed * 8 / 1e9 / static_cast<double>(ports);
  return {speed_of(std::max(each, least_gigabits)), ports};
}

Link link_with_ports(double bytes_per_second, int64_t ports) {
  const double most = fastest().bytes_per_second();
  const int64_t needed = parts_for(provisioned(bytes_per_second), most);
  require(
      needed <= ports, Fault::usage,
      "node_gb_per_s: {:g} GB/s of each server need {} of {}, filled to {:.0f}%, but it has {}; "
      "give --fabric_ports {}",
      bytes_per_second / 1e9, count(needed, "port"), fastest().name, 100 * kFill, ports, needed);
  return {speed_of(provisioned(bytes_per_second) * 8 / 1e9 / static_cast<double>(ports)), ports};
}

FatTree fat_tree(int64_t endpoints, int64_t ports, double oversubscription) {
  require(
      ports >= 2 && ports % 2 == 0, Fault::usage,
      "switch_ports: expected an even number of ports, found {}; half of them lead to endpoints",
      ports);
  FatTree t{.endpoints = endpoints, .ports = ports, .oversubscription = oversubscription};
  const int64_t down = ports_down(ports, oversubscription);
  // Each spine has a port for each leaf.
  t.most_endpoints = ports * down;
  if (endpoints <= ports) {
    t.leaves = endpoints > 0 ? 1 : 0;
    t.down = ports;
  } else if (endpoints <= t.most_endpoints) {
    t.down = down;
    t.up = ports - down;
    t.leaves = parts_for(endpoints, down);
    t.spines = parts_for(t.leaves * t.up, ports);
  }
  return t;
}

int64_t ports_for(int64_t endpoints, double oversubscription) {
  int64_t ports = 2;
  while (ports * ports_down(ports, oversubscription) < endpoints) ports += 2;
  return ports;
}

int64_t most_of_three_levels(int64_t ports) {
  return ports * ports * ports / 4;
}

}  // namespace capstan
