#pragma once

#include <cstdint>
#include <optional>

#include "base/names.h"
#include "site/circuit.h"
#include "site/server.h"

namespace capstan {

// What may fail without a server going down: no PDU, one PDU of each rack, or one of two feeds (A
// and B), each of which carries the whole load.
enum class Redundancy { none, one_more, two_feeds };
template <>
struct NameTable<Redundancy> {
  static constexpr Named<Redundancy> rows[] = {
      {Redundancy::none, "none"}, {Redundancy::one_more, "n+1"}, {Redundancy::two_feeds, "2n"}};
};

// The racks of a site are alike.
struct RackKind {
  int64_t units = 42;
  int64_t most_pdus = 2;
  double most_watts = 0;  // that the room cools and feeds in a rack; 0: what the PDUs carry
  Circuit circuit;        // of each PDU
  Redundancy redundancy = Redundancy::two_feeds;
};

enum class RackLimit { power, height, room };
template <>
struct NameTable<RackLimit> {
  static constexpr Named<RackLimit> rows[] = {
      {RackLimit::power, "power"}, {RackLimit::height, "height"}, {RackLimit::room, "room"}};
};

struct RackLayout {
  // Servers that one PDU carries alone, or, where that is 0, the PDUs that one server needs.
  int64_t servers_per_pdu = 0, pdus_per_server = 1;
  int64_t servers_per_rack = 0;
  RackLimit limit = RackLimit::power;  // why they are not more
  int64_t racks = 0;
  int64_t pdus = 0;           // of all racks; the last may need fewer
  int64_t pdus_per_rack = 0;  // of a full rack
  int64_t cords_per_server = 0;
};

// Racks for so many servers. A server's load is counted in VA as in W: the power factor of its
// supplies is near 1. Nothing: not even one server goes into such a rack.
std::optional<RackLayout> lay_out(const GpuServer& server, int64_t servers, const RackKind& rack);
// The same; throws Fault::usage, with what to change, where there is none.
RackLayout require_layout(const GpuServer& server, int64_t servers, const RackKind& rack);

}  // namespace capstan
