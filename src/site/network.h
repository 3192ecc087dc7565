#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace capstan {

// A step of network speed, and the switch that is usual for it.
struct LinkSpeed {
  std::string_view name;
  double gigabits = 0;  // per second, each way
  std::string_view switch_name;
  int64_t switch_ports = 0;

  double bytes_per_second() const { return gigabits * 1e9 / 8; }
};

// Ports of a server on a network: as few as possible, then as slow as possible.
struct Link {
  LinkSpeed speed;
  int64_t ports = 1;
};
// The slowest step of at least so many gigabits.
LinkSpeed speed_of(double gigabits);
// What carries this need at kFill.
Link link_for(double bytes_per_second, double least_gigabits = 0);
// With so many ports; throws Fault::usage where they do not carry it at any speed.
Link link_with_ports(double bytes_per_second, int64_t ports);

// Two levels of switches with so many ports each. Of the ports of a leaf, at most
// `oversubscription` are to endpoints for each to a spine. Without oversubscription: leaves ⌈N /
// (k/2)⌉, spines ⌈N / k⌉, for at most k²/2 endpoints. What one switch connects has one leaf and no
// spine.
struct FatTree {
  int64_t endpoints = 0, ports = 0;
  double oversubscription = 1;
  int64_t most_endpoints = 0;      // that two levels connect
  int64_t leaves = 0, spines = 0;  // 0 leaves: two levels do not suffice
  int64_t down = 0, up = 0;        // ports of a leaf, to endpoints and to spines
  int64_t cables_up() const { return leaves * up; }
  bool fits() const { return leaves > 0; }
};
// Throws Fault::usage for a number of ports that is odd.
FatTree fat_tree(int64_t endpoints, int64_t ports, double oversubscription = 1);
// The fewest ports with which two levels connect so many.
int64_t ports_for(int64_t endpoints, double oversubscription = 1);
// What three levels connect without oversubscription: k³/4.
int64_t most_of_three_levels(int64_t ports);

// A chassis whose line cards are leaves and whose fabric cards are spines.
struct Director {
  std::string_view name;
  double gigabits = 0;
  int64_t ports = 0, ports_per_spine = 0;
  int64_t spines() const { return ports / ports_per_spine; }
};
inline constexpr Director kDirector = {"CS7520", 100, 216, 36};

}  // namespace capstan
